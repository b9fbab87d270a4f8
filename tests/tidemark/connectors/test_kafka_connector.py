"""Kafka as a source: offsets as state, transactions, deletions, what is broken and what is gone. A real broker, no Spark."""

import json
import logging
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from signal import SIGCONT, SIGSTOP
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.services.kafka import PASSWORD, USER, KafkaServer
from tidemark.connectors.contract import OPERATION, REJECTED, Slice
from tidemark.connectors.kinds import _kafka_client as client
from tidemark.connectors.kinds import kafka as kind
from tidemark.connectors.kinds._kafka_client import Message, Range
from tidemark.connectors.kinds._kafka_records import Records
from tidemark.connectors.kinds.kafka import KafkaConnector, cut
from tidemark.connectors.registry import connector_for
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import (
    ConfigError,
    CursorInvalid,
    PositionLost,
    SchemaRefused,
    SourceError,
    SourceRefused,
    SourceUnreachable,
)

Reading = Callable[[int], Iterator[pa.RecordBatch]]

service = pytest.mark.service
fast = pytest.mark.fast


def stream_of(topic: str, **more: Any) -> StreamSpec:
    described = {"id": f"shop.{topic}", "key": ["id"], **more}
    return StreamSpec.model_validate(described).model_copy(update={"cursor": "_position", "cursor_type": "text"})


class Writer:
    """Writes to one topic, message by message or in transactions."""

    def __init__(self, broker: KafkaServer, topic: str, transactions: str | None = None) -> None:
        options: dict[str, Any] = {"bootstrap.servers": broker.brokers, "log_level": 0, "message.max.bytes": 40_000_000}
        if transactions:
            options["transactional.id"] = transactions
        self._producer = Producer(options)
        if transactions:
            self._producer.init_transactions(30)
        self.topic = topic

    def put(self, *values: Any, partition: int = 0, key: bytes | None = None) -> None:
        """Objects as JSON, bytes as they are, None as a deletion."""
        for value in values:
            content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self._producer.produce(self.topic, content, key, partition)
        assert self._producer.flush(30) == 0

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        self._producer.abort_transaction(30)


@pytest.fixture
def topic(broker: KafkaServer) -> Iterator[str]:
    name = broker.new_topic()
    yield name
    broker.drop_topic(name)


@pytest.fixture
def stream(topic: str) -> StreamSpec:
    return stream_of(topic)


@pytest.fixture
def writer(broker: KafkaServer, topic: str) -> Writer:
    return Writer(broker, topic)


@pytest.fixture
def source(broker: KafkaServer) -> KafkaConnector:
    return KafkaConnector({"brokers": broker.brokers}, {})


def pages(source: KafkaConnector, stream: StreamSpec, slices: list[Slice], page_size: int = 1000) -> list[pa.RecordBatch]:
    return [page for slice in slices for page in source.read(stream, slice, page_size)]


def rows(
    source: KafkaConnector, stream: StreamSpec, checkpoint: str | None = None, page_size: int = 1000
) -> list[dict[str, Any]]:
    """The records of what is pending; none of them may be broken."""
    found = pages(source, stream, source.pending(stream, checkpoint, 2), page_size)
    assert not [page for page in found if REJECTED in (page.schema.metadata or {})]
    return [row for page in found for row in page.to_pylist()]


def bodies(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]


def ids(found: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] for row in found]


def broken(found: list[pa.RecordBatch]) -> list[tuple[str, Any]]:
    """Reason and value of everything that was set apart."""
    apart = [page for page in found if REJECTED in (page.schema.metadata or {})]
    return [
        (page.schema.metadata[REJECTED].decode(), json.loads(text)) for page in apart for text in page["text"].to_pylist()
    ]


def after_all(source: KafkaConnector, stream: StreamSpec, checkpoint: str | None = None) -> str:
    return source.advanced(stream, checkpoint, source.pending(stream, checkpoint, 2))


# --- the seed's four rules ---------------------------------------------------------------------------------------------


@service
def test_it_respects_the_input_state_and_reads_nothing_older(
    source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": 1}, {"id": 2})
    checkpoint = after_all(source, stream)
    assert source.pending(stream, checkpoint, 2) == []
    writer.put({"id": 3})
    assert [(row["id"], row["_position"]) for row in rows(source, stream, checkpoint)] == [(3, "0:2")]


@service
def test_it_returns_the_maximum_cursor_over_all_pages(source: KafkaConnector, stream: StreamSpec, writer: Writer) -> None:
    writer.put(*({"id": n} for n in range(25)))
    slices = source.pending(stream, None, 2)
    found = pages(source, stream, slices, page_size=10)
    assert [page.num_rows for page in found] == [10, 10, 5]
    assert max(row["_offset"] for page in found for row in page.to_pylist()) == 24
    assert json.loads(source.advanced(stream, None, slices))["offsets"] == {"0": 25}


@service
def test_reading_a_window_twice_gives_the_same_records(source: KafkaConnector, stream: StreamSpec, writer: Writer) -> None:
    writer.put({"id": 1, "size": 1}, b"no JSON", {"id": 2, "size": 2.5}, None)
    slices = source.pending(stream, None, 2)
    first = pages(source, stream, slices)
    writer.put({"id": 3, "colour": "red"})  # comes later, and changes nothing of what was planned
    again = pages(
        KafkaConnector(source.settings, {}), stream, [Slice.from_json(json.loads(json.dumps(slices[0].to_json())))]
    )
    assert [page.to_pylist() for page in first] == [page.to_pylist() for page in again]
    assert [page.schema for page in first] == [page.schema for page in again]


@service
def test_a_state_that_was_put_back_reads_the_same_messages_again(
    source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    """What a safety window is for other kinds: offsets have none, since no message comes late."""
    writer.put({"id": 1})
    earlier = after_all(source, stream)
    writer.put({"id": 2}, {"id": 3})
    first = rows(source, stream, earlier)
    after_all(source, stream, earlier)
    assert rows(source, stream, earlier) == first
    assert ids(first) == [2, 3]


# --- partitions and slices ---------------------------------------------------------------------------------------------


@service
def test_partitions_are_read_in_their_order_and_each_message_once(
    broker: KafkaServer, source: KafkaConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "LEAST_OFFSETS", 10)
    topic = broker.new_topic(partitions=3)
    writer, stream = Writer(broker, topic), stream_of(topic)
    for partition in (2, 0, 1):
        writer.put(*({"id": f"{partition}-{n}"} for n in range(40)), partition=partition)
    slices = source.pending(stream, None, 5)
    assert [each.number for each in slices] == [0, 1, 2, 3, 4]
    found = [row for page in pages(source, stream, slices, 7) for row in page.to_pylist()]
    assert ids(found) == [f"{partition}-{n}" for partition in range(3) for n in range(40)]
    assert [row["_position"] for row in found] == [f"{row['_partition']}:{row['_offset']}" for row in found]
    assert json.loads(source.advanced(stream, None, iter(slices)))["offsets"] == {"0": 40, "1": 40, "2": 40}


@service
def test_a_new_partition_is_read_from_its_beginning(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": 1})
    checkpoint = after_all(source, stream)
    broker.add_partitions(writer.topic, 2)
    Writer(broker, writer.topic).put({"id": 2}, partition=1)
    assert [row["_position"] for row in rows(source, stream, checkpoint)] == ["1:0"]


@service
def test_a_new_partition_cannot_lose_messages_unseen(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": 1})
    checkpoint = after_all(source, stream)
    broker.add_partitions(writer.topic, 2)
    Writer(broker, writer.topic).put({"id": 2}, {"id": 3}, partition=1)
    broker.expire(writer.topic, 1, 1)
    with pytest.raises(PositionLost, match="partition 1 of the topic has let go"):
        source.pending(stream, checkpoint, 2)


@service
def test_a_partition_whose_messages_all_went_before_the_first_run_is_read_on_from_there(
    broker: KafkaServer, source: KafkaConnector
) -> None:
    topic = broker.new_topic(partitions=2)
    writer, stream = Writer(broker, topic), stream_of(topic)
    writer.put({"id": 1}, partition=0)
    writer.put({"id": 2}, {"id": 3}, partition=1)
    broker.expire(topic, 1, 2)
    checkpoint = after_all(source, stream)
    writer.put({"id": 4}, partition=1)
    assert [row["_position"] for row in rows(source, stream, checkpoint)] == ["1:2"]


@service
def test_a_partition_that_was_empty_before_cannot_lose_messages_unseen(broker: KafkaServer, source: KafkaConnector) -> None:
    topic = broker.new_topic(partitions=2)
    writer, stream = Writer(broker, topic), stream_of(topic)
    writer.put({"id": 1}, partition=0)
    checkpoint = after_all(source, stream)
    writer.put({"id": 2}, {"id": 3}, partition=1)
    broker.expire(topic, 1, 2)
    with pytest.raises(PositionLost, match="partition 1 of the topic has let go"):
        source.pending(stream, checkpoint, 2)


@service
def test_an_empty_topic_gives_no_slices_and_its_later_messages_are_read(
    source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    assert source.pending(stream, None, 2) == []
    checkpoint = source.advanced(stream, None, [])
    assert source.discover(stream).names[:1] == ["id"]
    writer.put({"id": 1})
    assert ids(rows(source, stream, checkpoint)) == [1]


@service
def test_messages_that_came_to_an_empty_topic_and_went_before_the_next_run_are_missed(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    assert source.pending(stream, None, 2) == []
    writer.put({"id": 1}, {"id": 2})
    broker.expire(writer.topic, 0, 1)  # even before the run is over
    checkpoint = source.advanced(stream, None, [])
    with pytest.raises(PositionLost, match=r"partition 0 of the topic has let go .*--full"):
        source.pending(stream, checkpoint, 2)


@service
def test_an_empty_topic_whose_messages_were_gone_before_the_first_run_is_read_on_from_its_end(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": 1}, {"id": 2})
    broker.expire(writer.topic, 0, 2)
    checkpoint = after_all(source, stream)
    assert json.loads(checkpoint)["offsets"] == {"0": 2}
    assert source.advanced(stream, checkpoint, []) == checkpoint
    writer.put({"id": 3})
    assert ids(rows(source, stream, checkpoint)) == [3]


@service
def test_whether_there_is_news_is_told_by_the_ends_of_partitions_without_reading(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.put({"id": 1})
    checkpoint = after_all(source, stream)
    monkeypatch.setattr(client.Brokers, "batches", lambda *_: pytest.fail("a message was read"))
    assert not source.has_news(stream, checkpoint)
    writer.put({"id": 2})
    assert source.has_news(stream, checkpoint)
    broker.expire(writer.topic, 0, 2)
    with pytest.raises(PositionLost):
        source.has_news(stream, checkpoint)


@fast
def test_ranges_are_cut_and_gathered_in_their_order() -> None:
    ranges = [Range(0, 5, 8), Range(1, 0, 25), Range(3, 7, 8)]
    assert list(cut(ranges, 10)) == [
        [Range(0, 5, 8), Range(1, 0, 7)],
        [Range(1, 7, 17)],
        [Range(1, 17, 25), Range(3, 7, 8)],
    ]


@fast
def test_only_rows_at_or_after_the_checkpoint_count_as_reachable() -> None:
    source, stream = KafkaConnector({"brokers": "x"}, {}), stream_of("orders")
    checkpoint = '{"topic_id":"a","offsets":{"0":5,"10":7},"key_types":{}}'
    cursors = ["0:4", "0:5", "0:10", "1:0", "10:6", "10:7", "10:70"]
    with duckdb.connect() as db:
        db.execute("CREATE TABLE bronze AS SELECT unnest(?) AS cursor", [cursors])
        kept = db.sql(f"SELECT cursor FROM bronze WHERE true AND {source.reachable(stream, checkpoint)}").fetchall()
    assert [row[0] for row in kept] == ["0:5", "0:10", "1:0", "10:7", "10:70"]
    assert source.reachable(stream, None) == "true"


# --- transactions ------------------------------------------------------------------------------------------------------


@service
def test_committed_messages_are_read_aborted_ones_are_not_and_open_ones_wait(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    first, second = Writer(broker, writer.topic, "first"), Writer(broker, writer.topic, "second")
    first.begin()
    first.put({"id": 1}, {"id": 2})
    first.commit()
    first.begin()
    first.put({"id": 3}, {"id": 4})
    first.abort()
    second.begin()
    second.put({"id": 5})
    writer.put({"id": 6})  # behind the open transaction: it waits too, or the open one would be passed over
    slices = source.pending(stream, None, 2)
    assert ids([row for page in pages(source, stream, slices) for row in page.to_pylist()]) == [1, 2]
    checkpoint = source.advanced(stream, None, slices)
    assert source.pending(stream, checkpoint, 2) == []
    second.commit()
    assert ids(rows(source, stream, checkpoint)) == [5, 6]


@service
def test_a_range_that_ends_with_aborted_messages_is_read_to_its_end(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    aborting = Writer(broker, writer.topic, "aborting")
    writer.put({"id": 1})
    aborting.begin()
    aborting.put({"id": 2}, {"id": 3})
    aborting.abort()
    begun = time.monotonic()
    (planned,) = source.pending(stream, None, 2)
    assert [page["id"].to_pylist() for page in source.read(stream, planned, 10)] == [[1]]
    checkpoint = after_all(source, stream)
    assert time.monotonic() - begun < source._timeout / 2
    assert json.loads(checkpoint)["offsets"] == {"0": 4}  # three messages and the mark of the abortion
    assert source.pending(stream, checkpoint, 2) == []
    aborting.begin()
    aborting.put({"id": 4})
    aborting.abort()
    assert rows(source, stream, checkpoint) == []  # nothing but aborted ones
    aborting.begin()
    aborting.put({"id": 5})
    aborting.commit()
    assert [page["id"].to_pylist() for page in source.read(stream, planned, 10)] == [[1]]  # not what came behind its end
    assert ids(rows(source, stream, after_all(source, stream, checkpoint))) == []
    assert ids(rows(source, stream, checkpoint)) == [5]


@service
def test_messages_that_compaction_took_away_are_not_waited_for(broker: KafkaServer, source: KafkaConnector) -> None:
    quick = {"segment_ms": "50", "min_cleanable_dirty_ratio": "0.001", "max_compaction_lag_ms": "50"}
    topic = broker.new_topic(cleanup_policy="compact", **quick)
    writer, stream = Writer(broker, topic), stream_of(topic)
    limit = time.monotonic() + 20
    written = 0
    while len(found := rows(source, stream)) == written and time.monotonic() < limit:
        writer.put({"id": 1, "size": written}, key=b"1")
        written += 1
        time.sleep(0.2)
    assert len(found) < written
    assert found[-1]["_offset"] == written - 1


# --- positions that are gone -------------------------------------------------------------------------------------------


@service
def test_offsets_that_retention_has_passed_are_told(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": 1})
    checkpoint = after_all(source, stream)
    writer.put({"id": 2}, {"id": 3}, {"id": 4})
    (planned,) = source.pending(stream, checkpoint, 2)
    broker.expire(writer.topic, 0, 3)
    with pytest.raises(PositionLost, match=r"partition 0 of the topic has let go .*--full"):
        source.pending(stream, checkpoint, 2)
    with pytest.raises(PositionLost, match=r"partition 0 of .* no longer has the offsets"):
        list(source.read(stream, planned, 10))
    assert ids(rows(source, stream)) == [4]  # a run that reads everything takes what is there


@service
def test_a_topic_that_was_made_anew_is_told_even_if_it_has_grown_past_the_old_one(
    broker: KafkaServer, source: KafkaConnector
) -> None:
    topic = broker.new_topic()
    stream = stream_of(topic)
    Writer(broker, topic).put({"id": 1})
    (planned,) = slices = source.pending(stream, None, 2)
    checkpoint = source.advanced(stream, None, slices)
    broker.drop_topic(topic)
    made_anew(broker, topic)
    Writer(broker, topic).put({"id": 10}, {"id": 20}, {"id": 30})
    with pytest.raises(PositionLost, match=f"the topic {topic} is another one"):
        source.pending(stream, checkpoint, 2)
    with pytest.raises(PositionLost, match=f"the topic {topic} is another one"):
        list(source.read(stream, planned, 10))


@service
def test_an_offset_behind_the_end_is_told(source: KafkaConnector, stream: StreamSpec, writer: Writer) -> None:
    writer.put({"id": 1})
    ahead = json.loads(after_all(source, stream)) | {"topic_id": None, "offsets": {"0": 2}}  # of a broker without topic ids
    with pytest.raises(PositionLost, match="partition 0 of the topic ends before the offset"):
        source.pending(stream, json.dumps(ahead), 2)
    ahead["offsets"] = {"0": 1, "1": 1}
    with pytest.raises(PositionLost, match="is another one"):
        source.pending(stream, json.dumps(ahead), 2)


@fast
@pytest.mark.parametrize("text", ["", "{}", "7", '{"topic_id":null,"offsets":{"a":1},"key_types":{}}'])
def test_a_state_that_is_no_set_of_offsets_is_told_without_its_value(text: str) -> None:
    with pytest.raises(CursorInvalid, match="no set of offsets") as told:
        KafkaConnector({"brokers": "x"}, {}).reachable(stream_of("orders"), text)
    assert text == "" or text not in str(told.value)


def made_anew(broker: KafkaServer, topic: str) -> None:
    """A topic is gone some moments after it was dropped."""
    for _ in range(100):
        try:
            broker.make_topic(topic)
            return
        except Exception:
            time.sleep(0.05)
    raise TimeoutError(topic)


# --- records -----------------------------------------------------------------------------------------------------------


@service
def test_a_record_has_the_fields_of_its_object_and_tells_where_it_is_from(
    source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    begun = int(time.time()) - 1
    order = {
        "id": 1,
        "paid": True,
        "at": "2024-01-01T00:00:00Z",
        "lines": [{"item": "pen", "price": 1.5}],
        "to": {"city": "Köln"},
    }
    writer.put(order, key=b"k1")
    (row,) = rows(source, stream)
    assert bodies([row]) == [order]
    assert (row["_position"], row["_partition"], row["_offset"], row["_key"]) == ("0:0", 0, 0, "k1")
    assert begun <= row["_timestamp"].timestamp() <= time.time() + 1
    assert row[OPERATION] == "upsert"
    (page,) = pages(source, stream, source.pending(stream, None, 2))
    assert page.schema.field("_timestamp").type == pa.timestamp("us", tz="UTC")
    assert page.schema.remove(page.schema.get_field_index(OPERATION)) == source.discover(stream)


@service
def test_fields_that_come_later_are_there_in_all_slices(
    broker: KafkaServer, source: KafkaConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "LEAST_OFFSETS", 1)
    topic = broker.new_topic(partitions=2)
    writer, stream = Writer(broker, topic), stream_of(topic)
    writer.put({"id": 1, "size": 3}, {"id": 2, "size": 4.5, "to": {"zip": 1}}, partition=0)
    writer.put({"id": 3, "colour": "red", "to": {"city": "Rome"}}, partition=1)
    slices = source.pending(stream, None, 3)
    assert len(slices) == 3
    assert len({page.schema for page in pages(source, stream, slices)}) == 1
    assert bodies(rows(source, stream)) == [
        {"id": 1, "size": 3.0, "to": None, "colour": None},
        {"id": 2, "size": 4.5, "to": {"zip": 1, "city": None}, "colour": None},
        {"id": 3, "size": None, "to": {"zip": None, "city": "Rome"}, "colour": "red"},
    ]


@service
def test_messages_that_are_no_objects_are_set_apart_and_the_others_are_read(
    source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": 1}, b'{"id": 2', b"[3]", b"", b'{"id": "\xff"}', b'{"id": 6}{"id": 7}', {"id": 8})
    found = pages(source, stream, source.pending(stream, None, 2))
    assert found[0]["id"].to_pylist() == [1, 8]
    assert broken(found) == [
        ("a message is no JSON object in UTF-8", {"_position": f"0:{offset}", "_key": None, "_value": text})
        for offset, text in enumerate(['{"id": 2', "[3]", "", '{"id": "\\xff"}', '{"id": 6}{"id": 7}'], start=1)
    ]


@service
def test_values_that_do_not_fit_the_type_of_their_field_are_set_apart(
    source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put(
        {"id": 1, "size": 3},
        {"id": 2, "size": "large"},
        {"id": 3, "size": {"w": 1}},
        b'{"id": 4, "id": 5}',
        {"id": 6, "size": 7},
    )
    found = pages(source, stream, source.pending(stream, None, 2))
    assert found[0].select(["id", "size"]).to_pylist() == [{"id": 1, "size": 3}, {"id": 6, "size": 7}]
    assert [(reason, told["_position"]) for reason, told in broken(found)] == [
        ("a message does not fit the types of the fields", f"0:{offset}") for offset in (1, 2, 3)
    ]


@service
def test_a_message_without_a_value_deletes_the_record_that_its_key_names(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": 7, "item": "pen"}, key=b"7")
    writer.put(None, key=b'{"id": 7}')
    writer.put({"id": 7, "item": "ink"}, key=b"7")
    writer.put(None, key=b"7")
    found = rows(source, stream)
    assert [(row["id"], row["item"], row[OPERATION]) for row in found] == [
        (7, "pen", "upsert"),
        (7, None, "delete"),
        (7, "ink", "upsert"),
        (7, None, "delete"),
    ]
    writer.put(None)
    writer.put(None, key=b"\xff\x00")
    writer.put(None, key=b'{"other": 1}')
    apart = broken(pages(source, stream, source.pending(stream, None, 2)))
    assert [(reason.partition(" has ")[2], told["_position"]) for reason, told in apart] == [
        ("no key that says which record is gone", f"0:{offset}") for offset in (4, 5, 6)
    ]


@service
def test_a_run_that_sees_only_deletions_knows_the_type_of_the_key_from_before(
    source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": "7", "item": "pen"}, key=b"7")
    checkpoint = after_all(source, stream)
    writer.put(None, key=b"7")
    (row,) = rows(source, stream, checkpoint)
    assert (row["id"], row[OPERATION]) == ("7", "delete")
    assert json.loads(after_all(source, stream, checkpoint))["key_types"] == {"id": "string"}


@service
def test_text_and_binary_values_are_landed_as_they_are(broker: KafkaServer, topic: str, writer: Writer) -> None:
    stream = stream_of(topic, key=["_key"])
    writer.put(b"hello\nworld", key=b"a")
    writer.put(b"\xff\x00", key=b"b")
    writer.put(None, key=b"a")
    text = KafkaConnector({"brokers": broker.brokers, "format": "text"}, {})
    found = pages(text, stream, text.pending(stream, None, 2))
    assert found[0].select(["_key", "_value", OPERATION]).to_pylist() == [
        {"_key": "a", "_value": "hello\nworld", OPERATION: "upsert"},
        {"_key": "a", "_value": None, OPERATION: "delete"},
    ]
    assert [told["_value"] for _, told in broken(found)] == ["\\xff\x00"]
    binary = KafkaConnector({"brokers": broker.brokers, "format": "binary"}, {})
    assert [row["_value"] for row in rows(binary, stream)] == [b"hello\nworld", b"\xff\x00", None]
    with pytest.raises(SchemaRefused, match="in the format text have no field id"):
        text.pending(stream_of(topic), None, 2)


@service
def test_a_fixed_schema_types_the_fields_and_leaves_the_others_out(
    source: KafkaConnector, topic: str, writer: Writer
) -> None:
    types = {"id": "integer", "price": "decimal(10,2)", "at": "timestamp", "day": "date", "hour": "time", "_key": "string"}
    stream = stream_of(topic, schema_strategy="fixed", schema=types)
    order = {"id": 1, "price": 1.5, "at": "2024-01-01T00:00:00.5+01:00", "day": "2024-02-29", "hour": "12:30:00", "more": 1}
    writer.put(order, {"id": 2, "day": "2024-02-30"}, {"id": 3})
    found = pages(source, stream, source.pending(stream, None, 2))
    first, last = found[0].to_pylist()
    assert {name: str(value) for name, value in bodies([first])[0].items()} == {
        "id": "1", "price": "1.50", "at": "2023-12-31 23:00:00.500000+00:00", "day": "2024-02-29", "hour": "12:30:00",
    }  # fmt: skip
    assert found[0].schema.field("id").type == pa.int32()
    assert (last["id"], last["day"]) == (3, None)
    assert [told["_position"] for _, told in broken(found)] == ["0:1"]


@service
def test_a_message_of_20_megabytes_is_read(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    for number in range(3):
        writer.put({"id": number, "text": "x" * 20_000_000})
    found = pages(source, stream, source.pending(stream, None, 2))
    assert [(page.num_rows, len(page["text"][0].as_py())) for page in found] == [(2, 20_000_000), (1, 20_000_000)]


def message(value: bytes | None, key: bytes | None = None, offset: int = 0) -> Message:
    return Message(0, offset, None, key, value)


def landed(
    values: list[bytes | None], key: tuple[str, ...] = ("id",), keys: list[bytes | None] | None = None
) -> list[pa.RecordBatch]:
    records = Records(stream_of("orders", key=list(key)), "json")
    given = [message(value, keys[n] if keys else None, n) for n, value in enumerate(values)]
    return list(records.pages(given, records.fields([given], {})))


@fast
def test_an_object_over_several_lines_is_one_record() -> None:
    (page,) = landed([b'{\r\n "id": 1,\n "text": "a\\nb"\n}', b'{"id": 2}'])
    assert page.select(["id", "text"]).to_pylist() == [{"id": 1, "text": "a\nb"}, {"id": 2, "text": None}]


@fast
def test_a_field_without_any_value_gets_its_type_from_the_first_one() -> None:
    (page,) = landed([b'{"id": 1, "a": null, "b": [], "c": {}, "d": {"e": null, "f": 1}, "g": [{"h": null}]}'])
    assert page.schema.names[:2] == ["id", "d"]
    assert page["d"].to_pylist() == [{"f": 1}]


@fast
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("1", "2.5", pa.float64()),
        ("2.5", "1", pa.float64()),
        ("null", "true", pa.bool_()),
        ("1", '"large"', pa.int64()),
        ('"large"', "1", pa.string()),
        ("[]", "[1]", pa.list_(pa.int64())),
        ('{"a": 1}', '{"b": [2.5]}', pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])),
        ('{"a": 1}', "[1]", pa.struct([("a", pa.int64())])),
    ],
)  # fmt: skip
def test_types_of_a_field_in_earlier_and_later_messages_go_together(first: str, second: str, together: pa.DataType) -> None:
    records = Records(stream_of("orders"), "json")
    batches = [[message(f'{{"id": 1, "x": {value}}}'.encode())] for value in (first, second)]
    assert records.fields(batches, {}).field("x").type == together


@fast
def test_a_text_that_looks_like_a_time_stays_text() -> None:
    (page,) = landed([b'{"id": 1, "at": "2024-01-01", "l": [{"at": "2024-01-01 10:00:00"}]}'])
    assert page.select(["at", "l"]).to_pylist() == [{"at": "2024-01-01", "l": [{"at": "2024-01-01 10:00:00"}]}]


@fast
def test_a_field_with_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(SchemaRefused, match="messages have a field _key, _operation"):
        landed([b'{"id": 1, "_key": 2, "_operation": 3}'])


@fast
def test_keys_of_several_fields_and_of_other_types_are_found_in_deletions() -> None:
    (page,) = landed([b'{"a": 1, "b": "x"}', None], ("a", "b"), [None, b'{"b": "x", "a": 1, "c": 3}'])
    assert page.select(["a", "b"]).to_pylist() == [{"a": 1, "b": "x"}] * 2
    apart = landed([b'{"a": 1, "b": "x"}', None], ("a", "b"), [None, b"1"])
    assert [told["_position"] for _, told in broken(apart)] == ["0:1"]
    (page,) = landed([b'{"id": "1"}', None, None, None], keys=[None, b"1", b'"1"', b"null"])
    assert page["id"].to_pylist() == ["1", "1", "1", "null"]
    (page,) = landed([None, None], keys=[b"1", b"2"])
    assert page["id"].to_pylist() == [1, 2]
    apart = landed([b'{"id": 1}', None], keys=[None, b"abc"])
    assert [reason for reason, _ in broken(apart)] == ["a message does not fit the types of the fields"]


# --- the source itself -------------------------------------------------------------------------------------------------


@service
def test_a_broker_that_does_not_answer_is_told_in_time() -> None:
    source = KafkaConnector({"brokers": ["127.0.0.1:1", "127.0.0.1:2"], "timeout": 1}, {})
    begun = time.monotonic()
    with pytest.raises(SourceUnreachable, match=r"no broker of 127\.0\.0\.1:1,127\.0\.0\.1:2 answered within 1 s"):
        source.pending(stream_of("orders"), None, 2)
    with pytest.raises(SourceUnreachable):
        source.streams()
    assert time.monotonic() - begun < 5


@service
def test_a_missing_topic_is_told_and_not_made(broker: KafkaServer, source: KafkaConnector) -> None:
    with pytest.raises(SourceError, match="topic nonesuch: there is no such topic"):
        source.pending(stream_of("nonesuch"), None, 2)
    assert "nonesuch" not in broker.admin.list_topics(timeout=10).topics


@service
def test_topics_are_listed_without_kafkas_own(broker: KafkaServer, source: KafkaConnector, topic: str) -> None:
    Writer(broker, topic, "listing")  # makes an internal topic
    found = [each.source for each in source.streams()]
    assert topic in found
    assert not [name for name in found if name.startswith("__")]


def with_login(broker: KafkaServer, password: str) -> KafkaConnector:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    settings = {"brokers": broker.brokers_with_login, "config": config}
    return KafkaConnector(settings, {"user": USER, "password": password})


@service
def test_the_right_login_reads_and_a_wrong_one_is_refused_at_once_and_silently(
    broker: KafkaServer,
    stream: StreamSpec,
    writer: Writer,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[logging.LogRecord] = []
    listening = logging.Handler()
    monkeypatch.setattr(listening, "emit", heard.append)
    monkeypatch.setattr(logging.getLogger(), "handlers", [*logging.getLogger().handlers, listening])
    writer.put({"id": 1})
    slices = with_login(broker, PASSWORD).pending(stream, None, 2)
    wrong = with_login(broker, "wrong-password")
    begun = time.monotonic()
    with pytest.raises(SourceRefused) as told:
        wrong.pending(stream, None, 2)
    with pytest.raises(SourceRefused):
        list(wrong.read(stream, slices[0], 10))
    with pytest.raises(SourceRefused):
        list(wrong._opened().batches(stream.source_name, [Range(0, 0, 1)], 10, stream.id))
    assert time.monotonic() - begun < wrong._timeout / 2
    assert "wrong-password" not in str(told.value)
    assert capfd.readouterr() == ("", "")
    assert heard == []


@service
def test_a_topic_that_the_login_may_not_read_is_refused(broker: KafkaServer, stream: StreamSpec, writer: Writer) -> None:
    writer.put({"id": 1})
    source = with_login(broker, PASSWORD)
    slices = source.pending(stream, None, 2)
    who, what = f"User:{USER}", (ResourceType.TOPIC, writer.topic, ResourcePatternType.LITERAL)
    rule = AclBinding(*what, who, "*", AclOperation.READ, AclPermissionType.DENY)
    broker.admin.create_acls([rule])[rule].result(10)
    time.sleep(0.5)  # the broker learns of the rule some moments later
    with pytest.raises(SourceRefused):
        list(source.read(stream, slices[0], 10))


@service
def test_no_right_to_any_group_is_needed(broker: KafkaServer, stream: StreamSpec, writer: Writer) -> None:
    what = (ResourceType.GROUP, "*", ResourcePatternType.LITERAL)
    rule = AclBinding(*what, f"User:{USER}", "*", AclOperation.ALL, AclPermissionType.DENY)
    broker.admin.create_acls([rule])[rule].result(10)
    time.sleep(0.5)  # the broker learns of the rule some moments later
    writer.put({"id": 1})
    assert ids(rows(with_login(broker, PASSWORD), stream)) == [1]


class Forgetful(AdminClient):
    """Finds no leader when it is asked for the first time after it was opened for the first time."""

    opened = 0

    def __init__(self, *options: Any, **more: Any) -> None:
        super().__init__(*options, **more)
        Forgetful.opened += 1

    def list_offsets(self, wanted: Any, **how: Any) -> Any:
        if Forgetful.opened > 1:
            return super().list_offsets(wanted, **how)
        failed: Future[None] = Future()
        failed.set_exception(KafkaException(KafkaError(KafkaError._NOENT)))
        return dict.fromkeys(wanted, failed)


@service
def test_a_partition_without_a_leader_is_asked_for_again(
    source: KafkaConnector, stream: StreamSpec, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.put({"id": 1})
    monkeypatch.setattr(client, "AdminClient", Forgetful)
    assert len(source.pending(stream, None, 2)) == 1
    assert Forgetful.opened == 2


@pytest.fixture
def half_read(broker: KafkaServer, stream: StreamSpec, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Begins to read 200 messages, most of which the broker still has to send."""
    monkeypatch.setitem(client.READING, "queued.max.messages.kbytes", 1024)
    writer.put(*({"id": n, "text": "x" * 100_000} for n in range(200)))

    def begun(timeout: int) -> Iterator[pa.RecordBatch]:
        source = KafkaConnector({"brokers": broker.brokers, "timeout": timeout}, {})
        (slice,) = source.pending(stream, None, 1)
        found = source.read(stream, slice, 10)
        assert next(found)["id"].to_pylist() == list(range(10))
        return found

    return begun


@service
def test_reading_goes_on_when_the_broker_was_killed_and_comes_back(broker: KafkaServer, half_read: Reading) -> None:
    found = half_read(30)
    broker.kill()
    again = threading.Thread(target=broker.start)
    again.start()
    assert [number for page in found for number in page["id"].to_pylist()] == list(range(10, 200))
    again.join()


@service
def test_a_broker_that_falls_silent_while_it_is_read_is_told(broker: KafkaServer, half_read: Reading) -> None:
    found = half_read(1)
    assert broker.process is not None
    broker.process.send_signal(SIGSTOP)  # its connections stay open
    try:
        with pytest.raises(SourceUnreachable, match=r"partition 0 of .*: no message came for 1 s"):
            list(found)
    finally:
        broker.process.send_signal(SIGCONT)


@service
def test_nothing_is_committed_for_any_group(
    broker: KafkaServer, source: KafkaConnector, stream: StreamSpec, writer: Writer
) -> None:
    writer.put({"id": 1})
    rows(source, stream)
    groups = broker.admin.list_consumer_groups(request_timeout=10).result(10)
    assert [group.group_id for group in groups.valid] == []


@service
def test_it_can_be_sent_to_a_task_after_it_was_used(source: KafkaConnector, stream: StreamSpec, writer: Writer) -> None:
    writer.put({"id": 1})
    (slice,) = source.pending(stream, None, 2)
    sent = pickle.loads(pickle.dumps(source))
    assert [page["id"].to_pylist() for page in sent.read(stream, slice, 10)] == [[1]]
    opened = weakref.ref(source._opened())
    source.close()
    source.close()
    assert opened() is None  # and its connections with it


@service
def test_every_request_waits_its_turn(
    source: KafkaConnector, stream: StreamSpec, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[None] = []
    monkeypatch.setattr(source, "pace", lambda: waited.append(None))
    writer.put({"id": 1})
    slices = source.pending(stream, None, 2)
    assert len(waited) == 4  # the topic, both ends, the messages
    pages(source, stream, slices)
    assert len(waited) == 6


# --- settings ----------------------------------------------------------------------------------------------------------


@fast
@pytest.mark.parametrize(
    ("settings", "credentials", "words"),
    [
        ({}, {}, "`brokers` is missing"),
        ({"brokers": "x", "servers": "y"}, {}, "unknown: servers. It has: brokers, config"),
        ({"brokers": "x", "format": "avro"}, {}, "format must be one of json, text, binary"),
        ({"brokers": "x", "timeout": "soon"}, {}, "timeout must be a number"),
        ({"brokers": "x", "timeout": 0}, {}, "timeout must be a number"),
        ({"brokers": "x", "config": "a=b"}, {}, "config must be"),
        ({"brokers": "x", "config": {"sasl.password": "p", "group.id": "g"}}, {}, "not allowed: group.id, sasl.password"),
        ({"brokers": "x"}, {"user": "u"}, "belong together"),
        ({"brokers": "x"}, {"token": "secret-token"}, "unknown credentials: token. It has: user"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(settings: dict[str, Any], credentials: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as told:
        connector_for("kafka", settings, credentials)
    assert "secret-token" not in str(told.value)


@fast
def test_a_value_that_the_client_does_not_take_is_told() -> None:
    source = KafkaConnector({"brokers": "x", "config": {"security.protocol": "SMOKE_SIGNALS"}}, {})
    with pytest.raises(ConfigError, match="does not take a value under `config`"):
        source.streams()


@fast
def test_a_password_is_not_sent_in_the_clear_unless_that_is_asked_for() -> None:
    options = KafkaConnector({"brokers": ["a:1", "b:2"]}, {"user": "u", "password": "p"})._options
    assert options["security.protocol"] == "SASL_SSL"
    assert options["bootstrap.servers"] == "a:1,b:2"
    assert "p'" not in repr(KafkaConnector({"brokers": "a"}, {"user": "u", "password": "p"}))
