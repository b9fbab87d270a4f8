"""Topics of Kafka: every message that was committed, once, by its offset in its partition.

Progress is the next offset of every partition. A run reads up to where the first open transaction began when it was planned.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    Or,
)

from tidemark.connectors.contract import CheckpointConnector, Slice, StreamDescription
from tidemark.connectors.kinds._kafka_client import Brokers, Range, Topic, lost
from tidemark.connectors.kinds._kafka_records import FORMATS, Records
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.unknown_settings import unknown_settings
from tidemark.errors import ConfigError, CursorInvalid

SETTINGS = {"brokers", "topic", "format", "config", "timeout"}
CREDENTIALS = {"user": "sasl.username", "password": "sasl.password", "key_password": "ssl.key.password"}
# Options of the client that cannot change what is read, and are no secret.
CLIENT_OPTIONS = {
    "broker.address.family",
    "client.id",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "receive.message.max.bytes",
    "sasl.mechanism",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
}
# A slice of fewer offsets is not worth a task of its own; one of more would be lost with its task.
LEAST_OFFSETS = 10_000
MOST_OFFSETS = 200_000


@dataclass(frozen=True)
class Positions:
    """The checkpoint: the next offset of every partition, the topic they are of, and the types of the key's fields."""

    topic_id: str | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    # A run may see nothing but deletions, whose plain keys do not say whether 7 is a number or a text.
    key_types: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str | None, stream: StreamSpec) -> "Positions":
        if text is None:
            return cls()
        try:
            stored = json.loads(text)
            offsets = {int(partition): int(offset) for partition, offset in stored["offsets"].items()}
            return cls(stored["topic_id"], offsets, {str(name): str(type_) for name, type_ in stored["key_types"].items()})
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CursorInvalid(
                f"{stream.id}: its state is no set of offsets of Kafka. `tidemark stream reset` it and read everything."
            ) from None

    def to_text(self) -> str:
        offsets = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        stored = {"topic_id": self.topic_id, "offsets": offsets, "key_types": dict(self.key_types)}
        return json.dumps(stored, separators=(",", ":"))


class KafkaConnector(CheckpointConnector):
    """Settings: `brokers`; `topic`, unless it is the stream's source; `format` json, text or binary; `timeout`; `config`."""

    kind = "kafka"
    checkpoint_field = "_position"
    has_log = True
    bounded = ("_partition", "_offset")

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> None:
        super().__init__(settings, credentials)
        unknown = sorted(self.settings.keys() - SETTINGS)
        if unknown or not self.settings.get("brokers"):
            what = unknown_settings(unknown, SETTINGS) if unknown else "`brokers` is missing"
            raise refuse(f"{what}. It has: {', '.join(sorted(SETTINGS))}")
        if self.settings.get("format", "json") not in FORMATS:
            raise refuse(f"format must be one of {', '.join(FORMATS)}")
        self._timeout = checked_timeout(self.settings.get("timeout", 10))
        self._options = client_options(self.settings, self.credentials)
        self._brokers: Brokers | None = None
        # Where the partitions of an empty topic begin, as `pending` found it, for `advanced` of the same run.
        self._empty: Positions | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_brokers": None}

    # --- the contract ------------------------------------------------------------------------------------------------

    def streams(self) -> list[StreamDescription]:
        brokers = self._opened()
        found = brokers.topics(brokers.names(), "the list of topics")
        return [
            StreamDescription(topic.name, comment=f"{len(topic.partitions)} partitions")
            for topic in sorted(found, key=lambda topic: topic.name)
            if not topic.internal
        ]

    def discover(self, stream: StreamSpec) -> pa.Schema:
        return self.fields(stream, self.pending(stream, None, 1))

    def pending(self, stream: StreamSpec, checkpoint: str | None, parallel: int) -> list[Slice]:
        """The offsets after the checkpoint. They are looked through once, so that all slices have the same fields."""
        before = Positions.from_text(checkpoint, stream)
        topic, new = self._new(stream, before)
        ranges = [each for each in new if each.start < each.end]
        self._empty = None if ranges else beginning(topic, new)
        if not ranges:
            return []
        fields = self._records(stream).fields(self._looked_through(stream, ranges), types_of(before))
        size = -(-sum(each.end - each.start for each in ranges) // parallel)
        detail = {"topic_id": topic.id, "fields": b64encode(fields.serialize()).decode()}
        # Partitions with nothing to read are at a known place too.
        starts = {"starts": {str(each.partition): each.start for each in new}}
        return [
            Slice(number, detail=detail | {"ranges": [astuple(each) for each in group]} | ({} if number else starts))
            for number, group in enumerate(cut(ranges, min(max(size, LEAST_OFFSETS), MOST_OFFSETS)))
        ]

    def advanced(self, stream: StreamSpec, checkpoint: str | None, slices: Iterable[Slice]) -> str:
        before, slices = Positions.from_text(checkpoint, stream), list(slices)
        if not slices and not before.offsets:
            # Without a place in it, what comes to an empty topic and goes before the next run would not be missed.
            before = self._empty or beginning(*self._new(stream, before))
        offsets, topic_id, key_types = dict(before.offsets), before.topic_id, dict(before.key_types)
        for slice in slices:
            offsets |= {int(partition): start for partition, start in slice.detail.get("starts", {}).items()}
        for slice in slices:
            topic_id = slice.detail["topic_id"]
            key_types |= {name: str(fields_of(slice).field(name).type) for name in stream.key}
            for each in ranges_of(slice):
                offsets[each.partition] = max(offsets.get(each.partition, 0), each.end)
        return Positions(topic_id, offsets, key_types).to_text()

    def has_news(self, stream: StreamSpec, checkpoint: str) -> bool:
        """By the partitions' ends alone."""
        _, new = self._new(stream, Positions.from_text(checkpoint, stream))
        return any(each.start < each.end for each in new)

    def fields(self, stream: StreamSpec, slices: Iterable[Slice]) -> pa.Schema:
        for slice in slices:
            return fields_of(slice)
        return self._records(stream).fields([], {})

    def reachable(
        self, stream: StreamSpec, checkpoint: str | None, *, full: bool = False, slices: Iterable[Slice] = (), rows: str = ""
    ) -> str:
        del slices, rows
        offsets = {} if full else Positions.from_text(checkpoint, stream).offsets
        if not offsets:
            return "true"
        offset = "TRY_CAST(split_part(cursor, ':', 2) AS BIGINT)"
        cases = " ".join(f"WHEN '{partition}' THEN {offset} >= {next_}" for partition, next_ in sorted(offsets.items()))
        return f"(CASE split_part(cursor, ':', 1) {cases} ELSE true END)"

    def bounds(
        self, stream: StreamSpec, checkpoint: str | None, *, full: bool = False, slices: Iterable[Slice] = ()
    ) -> BooleanExpression:
        """By the offsets that records have: as text, 10 comes before 9."""
        del slices
        offsets = {} if full else Positions.from_text(checkpoint, stream).offsets
        if not offsets:
            return AlwaysTrue()
        known = [
            And(EqualTo(term="record._partition", value=partition), GreaterThanOrEqual(term="record._offset", value=next_))
            for partition, next_ in sorted(offsets.items())
        ]
        # Partitions that the checkpoint has no place in: later ones, or those between.
        others = [EqualTo(term="record._partition", value=each) for each in range(max(offsets)) if each not in offsets]
        return Or(GreaterThan(term="record._partition", value=max(offsets)), AlwaysFalse(), *known, *others)

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        topic = self._topic(stream)
        self._refuse_another_topic(topic, Positions(slice.detail["topic_id"]), stream)
        schema, records = fields_of(slice), self._records(stream)
        for messages in self._opened().batches(topic.name, ranges_of(slice), page_size, stream.id):
            yield from records.pages(messages, schema)

    def close(self) -> None:
        self._brokers = None

    # --- topics ------------------------------------------------------------------------------------------------------

    def _opened(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._options, self._timeout, self.pace)
        return self._brokers

    def _topic(self, stream: StreamSpec) -> Topic:
        name = self.settings.get("topic", stream.source_name)
        (topic,) = self._opened().topics([name], f"{stream.id}: topic {name}")
        return topic

    def _records(self, stream: StreamSpec) -> Records:
        return Records(stream, self.settings.get("format", "json"))

    def _looked_through(self, stream: StreamSpec, ranges: list[Range]) -> Iterator[list[Any]]:
        if self._records(stream).told:
            return iter(())
        name = self.settings.get("topic", stream.source_name)
        return self._opened().batches(name, ranges, self.page_size(stream), stream.id)

    def _new(self, stream: StreamSpec, before: Positions) -> tuple[Topic, list[Range]]:
        """What every partition has after the checkpoint, if only nothing."""
        topic = self._topic(stream)
        self._refuse_another_topic(topic, before, stream)
        return topic, [self._after(before, each, stream) for each in self._opened().bounds(topic, stream.id)]

    def _after(self, before: Positions, there: Range, stream: StreamSpec) -> Range:
        """What of a partition is to be read. One that came after the checkpoint is read from its beginning."""
        start = before.offsets.get(there.partition, 0) if before.offsets else there.start
        where = f"{stream.id}: partition {there.partition} of the topic"
        if start < there.start:
            raise lost(where, "has let go of messages that were not read; retention has passed them")
        if start > there.end:
            raise lost(
                where, "ends before the offset that was read last; the topic was re-created, or the cluster lost data"
            )
        return Range(there.partition, start, there.end)

    def _refuse_another_topic(self, topic: Topic, before: Positions, stream: StreamSpec) -> None:
        """A topic that was re-created under the same name has other messages at the same offsets."""
        other = before.topic_id is not None and topic.id is not None and before.topic_id != topic.id
        if other or before.offsets.keys() - set(topic.partitions):
            raise lost(f"{stream.id}: the topic {topic.name}", "is another one than was read before; it was re-created")


def beginning(topic: Topic, ranges: Iterable[Range]) -> Positions:
    return Positions(topic.id, {each.partition: each.start for each in ranges})


def cut(ranges: list[Range], size: int) -> Iterator[list[Range]]:
    """Groups of so many offsets, in their order."""
    group: list[Range] = []
    room = size
    for each in ranges:
        start = each.start
        while start < each.end:
            end = min(each.end, start + room)
            group.append(Range(each.partition, start, end))
            room -= end - start
            start = end
            if not room:
                yield group
                group, room = [], size
    if group:
        yield group


def ranges_of(slice: Slice) -> list[Range]:
    return [Range(*each) for each in slice.detail["ranges"]]


def fields_of(slice: Slice) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(slice.detail["fields"])))


def types_of(before: Positions) -> dict[str, pa.DataType]:
    found = {}
    for name, text in before.key_types.items():
        try:
            found[name] = pa.type_for_alias(text)
        except ValueError:
            continue  # a list or an object, which no plain key can be
    return found


def checked_timeout(given: Any) -> float:
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise refuse("timeout must be a number of seconds above 0")
    return seconds


def client_options(settings: Mapping[str, Any], credentials: Mapping[str, str]) -> dict[str, Any]:
    """What the client is opened with."""
    chosen = settings.get("config", {})
    if not isinstance(chosen, Mapping):
        raise refuse("config must be a list of options with a value each")
    strange = sorted(map(str, chosen.keys() - CLIENT_OPTIONS))
    if strange:
        raise refuse(f"config: not allowed: {', '.join(strange)}. Allowed: {', '.join(sorted(CLIENT_OPTIONS))}")
    unknown = sorted(credentials.keys() - CREDENTIALS.keys())
    if unknown:
        raise refuse(f"unknown credentials: {', '.join(unknown)}. It has: {', '.join(CREDENTIALS)}")
    if ("user" in credentials) != ("password" in credentials):
        raise refuse("credentials: `user` and `password` belong together")
    brokers = settings["brokers"]
    options = {"bootstrap.servers": ",".join(brokers) if isinstance(brokers, list) else str(brokers)}
    if "user" in credentials:
        # A password goes over an encrypted line unless `config` says otherwise.
        options |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    return {**options, **chosen, **{CREDENTIALS[name]: value for name, value in credentials.items()}}


def refuse(what: str) -> ConfigError:
    return ConfigError(f"settings of a kafka connector: {what}.")
