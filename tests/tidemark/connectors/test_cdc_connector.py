"""PostgreSQL's log as a source: a snapshot and what happened after it, nothing lost and nothing twice. No Spark."""

import pickle
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.services.postgres import PostgresServer, drop_slots
from tidemark.connectors.contract import OPERATION, Slice
from tidemark.connectors.kinds import _cdc_log, _cdc_pages, _cdc_snapshot
from tidemark.connectors.kinds import cdc as cdc_kind
from tidemark.connectors.kinds._cdc_types import arrow_type, from_texts
from tidemark.connectors.kinds._sql_dialects import dialect_for
from tidemark.connectors.kinds.cdc import CdcConnector, Position
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

Record = dict[str, Any]


def stream_of(source: str = "public.orders", *key: str) -> StreamSpec:
    named = {"id": f"shop.{source.rpartition('.')[2]}", "source": source, "key": list(key) or ["id"]}
    return StreamSpec.model_validate({**named, "cursor": "_lsn", "cursor_type": "text", "deletes": "log"})


class Closing(CdcConnector):
    def __enter__(self) -> "Closing":
        return self


@dataclass
class Shop:
    """A database, and what a platform does with a connector: it keeps the checkpoint and acknowledges it."""

    server: PostgresServer
    url: str
    stream: StreamSpec = field(default_factory=stream_of)
    settings: dict[str, str] = field(default_factory=dict)
    checkpoint: str | None = None

    def run(self, *sql: str) -> None:
        self.server.execute(self.url, *sql)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    def connector(self) -> "Closing":
        return Closing({"url": self.url, **self.settings}, {})

    @property
    def slot(self) -> str:
        ((name,),) = self.ask("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
        return str(name)

    def pending(self) -> list[Slice]:
        return self.connector().pending(self.stream, self.checkpoint, 2)

    def next(self, *, full: bool = False, page_size: int = 1000, acknowledge: bool = True) -> list[Record]:
        """The records of one run."""
        before = None if full else self.checkpoint
        with self.connector() as connector:
            slices = connector.pending(self.stream, before, 2)
            records = read(connector, self.stream, slices, page_size)
            self.checkpoint = connector.advanced(self.stream, before, slices)
            if acknowledge:
                connector.acknowledge(self.stream, self.checkpoint)
            return records

    def changes(self, **how: Any) -> list[tuple[Any, ...]]:
        """What happened and to whom, in short."""
        return [(record[OPERATION], record["id"], record.get("item")) for record in self.next(**how)]


def read(connector: CdcConnector, stream: StreamSpec, slices: Iterable[Slice], page_size: int = 1000) -> list[Record]:
    slices = list(slices)
    expected = pa.schema([*connector.fields(stream, slices), (OPERATION, pa.string())])
    records: list[Record] = []
    for slice in slices:
        for page in connector.read(stream, Slice.from_json(slice.to_json()), page_size):
            assert page.schema == expected
            assert 0 < page.num_rows <= page_size
            page.validate(full=True)
            records += page.to_pylist()
    return records


def applied(records: Iterable[Record], state: dict[Any, Record] | None = None) -> dict[Any, Record]:
    """The table that the records lead to."""
    state = {} if state is None else state
    for record in records:
        if record[OPERATION] == "truncate":
            state.clear()
        elif record[OPERATION] == "delete":
            state.pop(record["id"], None)
        else:
            state[record["id"]] = {name: value for name, value in record.items() if not name.startswith("_")}
    return state


@pytest.fixture(scope="module")
def database(logical_pg: PostgresServer) -> Iterator[str]:
    url = logical_pg.new_database()
    yield url
    logical_pg.drop_database(url)


@pytest.fixture
def shop(logical_pg: PostgresServer, database: str) -> Iterator[Shop]:
    """The one database, emptied: to make one takes longer than most of these tests."""
    shop = Shop(logical_pg, database)
    shop.run("DROP SCHEMA IF EXISTS public, sales CASCADE", "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO PUBLIC")
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    yield shop
    drop_slots(database)
    shop.run(
        *(f'DROP PUBLICATION "{name}"' for (name,) in shop.ask("SELECT replace(pubname, '\"', '\"\"') FROM pg_publication"))
    )


@pytest.fixture
def following(shop: Shop) -> Shop:
    """A shop whose empty table was read: what follows is in the log."""
    shop.next()
    return shop


# --- the snapshot --------------------------------------------------------------------------------------------------------


@pytest.mark.service
def test_a_first_run_reads_the_table_after_a_truncation(shop: Shop) -> None:
    shop.run("INSERT INTO orders VALUES (1, 'pen'), (2, NULL), (3, ''), (4, E'a \"b\",\\n\\\\c\\t')")
    first, *others = shop.next()
    assert {name: value for name, value in first.items() if name != "_lsn"} == {
        "id": None,
        "item": None,
        OPERATION: "truncate",
    }
    assert [(each["id"], each["item"]) for each in others] == [(1, "pen"), (2, None), (3, ""), (4, 'a "b",\n\\c\t')]
    assert {each[OPERATION] for each in others} == {"upsert"}
    assert {each["_lsn"] for each in [first, *others]} == {others[0]["_lsn"]}
    assert re.fullmatch("[0-9A-F]{8}/[0-9A-F]{8}", first["_lsn"])


@pytest.mark.service
def test_a_snapshot_is_read_in_parts_by_copies_of_the_connector(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cdc_snapshot, "LEAST_BLOCKS", 4)
    shop.run("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(1, 5000) AS i")
    connector = shop.connector()
    slices = connector.pending(shop.stream, None, 3)
    assert [each.number for each in slices] == [0, 1, 2]
    shop.run("UPDATE orders SET item = 'changed'", "DELETE FROM orders WHERE id > 4000", "VACUUM orders")
    parts = [read(pickle.loads(pickle.dumps(connector)), shop.stream, [each], 700) for each in slices]
    assert [part[0][OPERATION] for part in parts] == ["truncate", "upsert", "upsert"]
    assert all(len(part) > 1000 for part in parts)
    together = [record["id"] for part in parts for record in part if record["id"]]
    assert sorted(together) == list(range(1, 5001))
    assert {record["item"] for part in parts for record in part} == {None, "x" * 100}
    shop.checkpoint = connector.advanced(shop.stream, None, slices)
    connector.close()
    state = applied(record for part in parts for record in part)
    assert applied(shop.next(), state) == {n: {"id": n, "item": "changed"} for n in range(1, 4001)}


@pytest.mark.service
def test_a_snapshot_among_writers_and_the_log_after_it_make_the_table(shop: Shop) -> None:
    shop.run("INSERT INTO orders SELECT i, 'old' FROM generate_series(1, 2000) AS i")
    stop = threading.Event()

    def write(seed: int) -> None:
        with psycopg.connect(shop.url) as connection:
            number = 10_000 * seed
            while not stop.is_set():
                number += 1
                connection.execute("INSERT INTO orders VALUES (%s, 'new')", (number,))
                connection.execute("UPDATE orders SET item = %s WHERE id = %s", (str(number), 1 + number * 7 % 1000))
                connection.execute("DELETE FROM orders WHERE id = %s", (1000 + number * 3 % 1000,))
                if number % 5 == 0:
                    connection.execute("UPDATE orders SET id = id + 5000 WHERE id = %s", (number - 2,))
                connection.rollback() if number % 7 == 0 else connection.commit()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    try:
        state = applied(shop.next(page_size=100))
        state = applied(shop.next(page_size=100), state)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    last = shop.next(page_size=100)
    assert last
    table = {id: {"id": id, "item": item} for id, item in shop.ask("SELECT * FROM orders")}
    assert applied(last, state) == table


@pytest.mark.service
def test_a_full_run_begins_a_new_log(following: Shop) -> None:
    shop = following
    shop.run("INSERT INTO orders VALUES (1, 'pen')")
    assert shop.changes(full=True) == [("truncate", None, None), ("upsert", 1, "pen")]
    shop.run("INSERT INTO orders VALUES (2, 'ink')")
    assert shop.changes() == [("upsert", 2, "ink")]
    assert len(shop.ask("SELECT 1 FROM pg_replication_slots WHERE database = current_database()")) == 1


@pytest.mark.service
def test_a_snapshot_that_went_with_its_process_is_not_taken_up_again(shop: Shop) -> None:
    connector = shop.connector()
    slices = connector.pending(shop.stream, None, 2)
    assert not connector.resumable(slices)
    connector.close()
    with pytest.raises(SourceError, match="the snapshot of this run is gone"):
        read(connector, shop.stream, slices)


@pytest.mark.service
@pytest.mark.parametrize(
    "command", ["ALTER TABLE orders ALTER item TYPE varchar(90)", "TRUNCATE orders", "VACUUM FULL orders"]
)
def test_a_table_rewritten_while_its_snapshot_is_read_is_named(shop: Shop, command: str) -> None:
    shop.run("ALTER TABLE orders ALTER item TYPE char(10)", "INSERT INTO orders VALUES (1, 'pen')")
    connector = shop.connector()
    slices = connector.pending(shop.stream, None, 2)
    shop.run(command)
    with pytest.raises(SourceError, match="rewritten or replaced while it was read"):
        read(connector, shop.stream, slices)
    connector.close()


@pytest.mark.service
def test_children_by_inheritance_are_not_part_of_the_snapshot(shop: Shop) -> None:
    shop.run("CREATE TABLE late_orders () INHERITS (orders)", "INSERT INTO late_orders VALUES (7, 'child')")
    assert shop.changes() == [("truncate", None, None)]
    shop.run("INSERT INTO late_orders VALUES (8, 'child')", "INSERT INTO orders VALUES (9, 'own')")
    assert shop.changes() == [("upsert", 9, "own")]


@pytest.mark.service
def test_a_partitioned_table_is_one_table(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE visits (id int PRIMARY KEY, item text) PARTITION BY RANGE (id)",
        "CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE visits_2 PARTITION OF visits FOR VALUES FROM (100) TO (200)",
        "INSERT INTO visits VALUES (1, 'a'), (101, 'b')",
    )
    shop.stream = stream_of("public.visits")
    assert shop.changes() == [("truncate", None, None), ("upsert", 1, "a"), ("upsert", 101, "b")]
    shop.run("UPDATE visits SET id = 150 WHERE id = 1", "DELETE FROM visits WHERE id = 101")
    assert shop.changes() == [("delete", 1, None), ("upsert", 150, "a"), ("delete", 101, None)]


# --- the log -------------------------------------------------------------------------------------------------------------


@pytest.mark.service
def test_inserts_updates_deletions_and_truncations_come_in_their_order(following: Shop) -> None:
    following.run(
        "INSERT INTO orders VALUES (1, 'pen'), (2, 'ink')",
        "UPDATE orders SET item = 'cap' WHERE id = 2",
        "DELETE FROM orders WHERE id = 1",
        "TRUNCATE orders",
        "INSERT INTO orders VALUES (3, 'nib')",
    )
    records = following.next()
    assert [(each[OPERATION], each["id"], each["item"]) for each in records] == [
        ("upsert", 1, "pen"), ("upsert", 2, "ink"), ("upsert", 2, "cap"), ("delete", 1, None), ("truncate", None, None),
        ("upsert", 3, "nib"),
    ]  # fmt: skip
    cursors = [each["_lsn"] for each in records]
    assert cursors == sorted(cursors)
    assert len(set(cursors)) == len(cursors)


@pytest.mark.service
def test_respects_the_input_state_and_reads_nothing_older(following: Shop) -> None:
    following.run("INSERT INTO orders VALUES (1, 'pen')")
    assert following.changes(acknowledge=False) == [("upsert", 1, "pen")]
    assert following.pending() == []
    # The slot was not moved, so the log still has the first one.
    following.run("INSERT INTO orders VALUES (2, 'ink')")
    assert following.changes() == [("upsert", 2, "ink")]


@pytest.mark.service
def test_the_checkpoint_is_beyond_the_maximum_cursor_over_all_pages(following: Shop) -> None:
    following.run("INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 25) AS i", "DELETE FROM orders WHERE id = 3")
    records = following.next(page_size=10)
    assert len(records) == 26
    assert max(each["_lsn"] for each in records) == records[-1]["_lsn"]
    connector = following.connector()
    condition = connector.reachable(following.stream, following.checkpoint)
    bound = re.fullmatch("cursor >= '(.*)'", condition)
    assert bound is not None
    assert bound[1] > records[-1]["_lsn"]
    following.run("INSERT INTO orders VALUES (99, 'later')")
    assert following.next()[0]["_lsn"] > bound[1]


@pytest.mark.service
def test_reading_a_window_twice_gives_the_same_records(following: Shop) -> None:
    """A restart without loss: what was not acknowledged is peeked at again, with the same places."""
    following.run("INSERT INTO orders VALUES (1, 'pen'), (2, 'ink')", "UPDATE orders SET id = 5 WHERE id = 1")
    connector = following.connector()
    slices = connector.pending(following.stream, following.checkpoint, 2)
    assert connector.resumable(slices)
    first = read(connector, following.stream, slices)
    following.run("INSERT INTO orders VALUES (7, 'later')", "ALTER TABLE orders ADD COLUMN size int")
    assert read(following.connector(), following.stream, slices, page_size=2) == first
    before = following.checkpoint
    assert [record["id"] for record in following.next(acknowledge=False)] == [1, 2, 1, 5, 7]
    following.checkpoint = before
    assert [record["_lsn"] for record in following.next(acknowledge=False)][:4] == [record["_lsn"] for record in first]


@pytest.mark.service
def test_a_window_that_begins_earlier_reads_them_again(following: Shop) -> None:
    earlier = following.checkpoint
    following.run("INSERT INTO orders VALUES (1, 'pen')")
    first = following.next(acknowledge=False)
    following.checkpoint = earlier
    assert following.next() == first


@pytest.mark.service
def test_the_slot_moves_when_it_is_acknowledged_and_not_before(following: Shop) -> None:
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
    ((before,),) = following.ask(confirmed)
    following.run("INSERT INTO orders VALUES (1, 'pen')")
    following.next(acknowledge=False)
    assert following.ask(confirmed) == [(before,)]
    assert following.checkpoint is not None
    for checkpoint in (following.checkpoint, following.checkpoint, before):
        following.connector().acknowledge(following.stream, checkpoint)
    assert following.ask(confirmed) == [(following.checkpoint.partition("@")[0],)]


@pytest.mark.service
def test_transactions_come_in_the_order_of_their_commits(following: Shop) -> None:
    with psycopg.connect(following.url) as early, psycopg.connect(following.url) as late:
        early.execute("INSERT INTO orders VALUES (1, 'begun first')")
        late.execute("INSERT INTO orders VALUES (2, 'begun second')")
        early.execute("INSERT INTO orders VALUES (3, 'begun first')")
        late.commit()
        early.commit()
    records = following.next()
    assert [each["id"] for each in records] == [2, 1, 3]
    assert [each["_lsn"] for each in records] == sorted(each["_lsn"] for each in records)


@pytest.mark.service
def test_a_transaction_open_while_a_run_is_planned_is_in_the_run_after_its_commit(following: Shop) -> None:
    with psycopg.connect(following.url) as slow:
        slow.execute("INSERT INTO orders VALUES (1, 'slow')")
        following.run("INSERT INTO orders VALUES (2, 'quick')")
        connector = following.connector()
        slices = connector.pending(following.stream, following.checkpoint, 2)
        slow.commit()
        assert [record["id"] for record in read(connector, following.stream, slices)] == [2]
        following.checkpoint = connector.advanced(following.stream, following.checkpoint, slices)
        connector.acknowledge(following.stream, following.checkpoint)
    assert following.changes() == [("upsert", 1, "slow")]


@pytest.mark.service
def test_a_commit_that_is_not_on_disk_yet_is_left_to_a_later_run(following: Shop) -> None:
    seen: list[int] = []
    with psycopg.connect(following.url, autocommit=True) as hasty:
        for number in range(0, 20, 2):
            hasty.execute("SET synchronous_commit = on")
            hasty.execute("INSERT INTO orders VALUES (%s, 'on disk')", (number,))
            hasty.execute("SET synchronous_commit = off")
            hasty.execute("INSERT INTO orders VALUES (%s, 'in memory')", (number + 1,))
            seen += [record["id"] for record in following.next()]
    following.run("INSERT INTO orders VALUES (20, 'on disk')")
    seen += [record["id"] for record in following.next()]
    assert seen == list(range(21))


@pytest.mark.service
def test_a_transaction_behind_the_slice_is_not_read_even_if_the_server_gives_it(following: Shop) -> None:
    following.run("INSERT INTO orders VALUES (1, 'inside')")
    (slice,) = following.pending()
    following.run("INSERT INTO orders VALUES (2, 'behind')")
    slot, _, publication = slice.detail["peeked"]
    further = replace(slice, detail={**slice.detail, "peeked": [slot, "FFFF/0", publication]})
    assert [record["id"] for record in read(following.connector(), following.stream, [further])] == [1]


@pytest.mark.service
def test_what_was_rolled_back_never_happened(following: Shop) -> None:
    with psycopg.connect(following.url) as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'undone')")
        connection.rollback()
        connection.execute("INSERT INTO orders VALUES (2, 'kept')")
        connection.execute("SAVEPOINT s")
        connection.execute("INSERT INTO orders VALUES (3, 'undone')")
        connection.execute("ROLLBACK TO s")
        connection.commit()
    assert following.changes() == [("upsert", 2, "kept")]
    with psycopg.connect(following.url) as connection:
        connection.execute("INSERT INTO orders VALUES (4, 'undone')")
        connection.rollback()
    assert following.pending() == []


@pytest.mark.service
def test_another_key_is_a_deletion_and_a_new_record(following: Shop) -> None:
    following.run("INSERT INTO orders VALUES (1, 'pen')", "UPDATE orders SET id = 2, item = 'ink' WHERE id = 1")
    assert following.changes() == [("upsert", 1, "pen"), ("delete", 1, None), ("upsert", 2, "ink")]


@pytest.mark.service
@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
def test_a_large_value_that_was_not_touched_is_still_there(shop: Shop, identity: str) -> None:
    shop.run(
        "CREATE TABLE pages (id int, part text, text text, note text, PRIMARY KEY (id, part))",
        "ALTER TABLE pages ALTER text SET STORAGE EXTERNAL",
        f"ALTER TABLE pages REPLICA IDENTITY {identity}",
        "INSERT INTO pages VALUES (1, 'a''b', repeat('x', 100000), 'first'), (2, 'b', repeat('y', 100000), 'first')",
    )
    shop.stream = stream_of("public.pages", "id", "part")
    shop.next()
    shop.run("UPDATE pages SET note = 'second'", "UPDATE pages SET id = 3 WHERE id = 1")
    found = [(each[OPERATION], each["id"], each["note"], (each["text"] or "")[:1]) for each in shop.next(page_size=1)]
    # With the key alone in the log, the record of key 1 is looked up, and is gone: its deletion follows.
    gone = "x" if identity == "FULL" else ""
    assert found == [
        ("upsert", 1, "second", gone), ("upsert", 2, "second", "y"), ("delete", 1, None, ""), ("upsert", 3, "second", "x"),
    ]  # fmt: skip
    assert {len(each["text"] or "x" * 100_000) for each in shop.next(full=True)} == {100_000}


@pytest.mark.service
def test_large_values_are_looked_up_in_as_many_questions_as_it_takes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cdc_log, "LOOKED_UP", 3)
    shop.run(
        "ALTER TABLE orders ALTER item SET STORAGE EXTERNAL",
        "ALTER TABLE orders ADD note int",
        "INSERT INTO orders SELECT i, repeat(i::text, 50000) FROM generate_series(1, 7) AS i",
    )
    shop.next()
    shop.run("UPDATE orders SET note = id")
    assert [(each["id"], each["note"], each["item"][:1]) for each in shop.next()] == [(n, n, str(n)) for n in range(1, 8)]


@pytest.mark.service
def test_a_large_transaction_goes_over_many_pages(following: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    following.run("INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 10000) AS i")
    records = following.next(page_size=999, acknowledge=False)
    assert [each["id"] for each in records] == list(range(1, 10001))
    assert len({each["_lsn"].partition(".")[0] for each in records}) == 1
    assert [each["_lsn"] for each in records] == sorted(each["_lsn"] for each in records)


@pytest.mark.service
def test_a_page_of_large_values_ends_early(following: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(connector: CdcConnector, slices: list[Slice]) -> list[int]:
        return [page.num_rows for page in connector.read(following.stream, slices[0], 1000)]

    monkeypatch.setattr(_cdc_pages, "PAGE_BYTES", 10_000)
    monkeypatch.setattr(_cdc_snapshot, "PAGE_BYTES", 10_000)
    following.run("INSERT INTO orders SELECT i, repeat('x', 900) FROM generate_series(1, 100) AS i")
    with following.connector() as connector:
        first = connector.pending(following.stream, following.checkpoint, 1)
        assert set(sizes(connector, first)) <= {11, 1}
        assert set(sizes(connector, connector.pending(following.stream, None, 1))[1:]) <= {12, 4}


@pytest.mark.service
def test_changes_of_other_tables_are_none_of_the_stream(shop: Shop) -> None:
    shop.run("CREATE TABLE notes (id int PRIMARY KEY)", "CREATE PUBLICATION everything FOR ALL TABLES")
    shop.settings = {"publication": "everything"}
    shop.next()
    shop.run("INSERT INTO notes VALUES (1)", "TRUNCATE notes")
    assert shop.pending() == []
    shop.run("BEGIN; INSERT INTO notes VALUES (2); INSERT INTO orders VALUES (3, 'pen'); DELETE FROM notes; COMMIT")
    records = shop.next()
    assert [(each["id"], each["item"]) for each in records] == [(3, "pen")]
    assert records[0]["_lsn"].endswith(".0000000001")
    shop.run("TRUNCATE notes, orders")
    assert shop.changes() == [("truncate", None, None)]


@pytest.mark.service
def test_whether_there_is_news_is_told_without_any_change_coming_over_the_line(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run("CREATE TABLE notes (id int PRIMARY KEY)", "CREATE PUBLICATION everything FOR ALL TABLES")
    shop.settings = {"publication": "everything"}
    shop.next()
    monkeypatch.setattr(cdc_kind, "outlined", lambda *_: pytest.fail("the log was read"))

    def news() -> bool:
        assert shop.checkpoint is not None
        return shop.connector().has_news(shop.stream, shop.checkpoint)

    assert not news()
    shop.run("INSERT INTO notes VALUES (1)", "TRUNCATE notes")
    assert not news()
    with monkeypatch.context() as long:
        long.setattr(cdc_kind, "IDLE_BYTES", 1)
        assert news(), "a run moves the slot on"
    shop.run("TRUNCATE notes, orders")
    assert news()
    monkeypatch.undo()
    shop.next()
    assert not news()
    shop.run("INSERT INTO orders VALUES (1, 'pen')")
    assert news()
    drop_slots(shop.url)
    with pytest.raises(PositionLost):
        news()


@pytest.mark.service
def test_a_log_that_grew_without_the_table_is_let_go(following: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    following.run("CREATE TABLE notes AS SELECT generate_series(1, 1000)")
    assert following.pending() == []
    monkeypatch.setattr(cdc_kind, "IDLE_BYTES", 10_000)
    before = following.checkpoint
    assert following.next() == []
    assert following.checkpoint != before
    assert following.pending() == []


# --- types and columns ---------------------------------------------------------------------------------------------------

TYPED = {
    "a_small": ("smallint", "-5"),
    "a_int": ("integer", "70000"),
    "a_big": ("bigint", "9000000000"),
    "a_real": ("real", "1.5"),
    "a_double": ("double precision", "'NaN'"),
    "a_flag": ("boolean", "true"),
    "a_date": ("date", "'2024-02-29'"),
    "a_moment": ("timestamptz", "'2024-02-29 12:00:00.123456+02'"),
    "a_local": ("timestamp", "'2024-02-29 12:00:00.5'"),
    "a_bytes": ("bytea", "'\\x00ff'"),
    "a_text": ("text", "'grün, \"é\" '"),
    "a_fixed": ("char(5)", "'ab'"),
    "a_varied": ("varchar(20)", "'ab '"),
    "a_uuid": ("uuid", "'123e4567-e89b-12d3-a456-426614174000'"),
    "a_price": ("numeric(12,2)", "12.5"),
    "a_huge": ("numeric(38,20)", "123456789012345678.12345678901234567890"),
    "a_free": ("numeric", "'1e50'"),
    "a_odd": ("numeric(3,5)", "0.00123"),
    "a_json": ("json", "'{\"a\":  1}'"),
    "a_jsonb": ("jsonb", "'{\"a\":  1}'"),
    "a_list": ("integer[]", "'{1,NULL,3}'"),
    "a_time": ("time", "'12:34:56.7'"),
    "a_span": ("interval", "'1 day 02:03:04'"),
    "a_mood": ("mood", "'sad'"),
    "a_domain": ("positive", "5"),
    "a_net": ("inet", "'10.0.0.1/8'"),
}


@pytest.mark.service
def test_all_types_come_the_same_from_snapshot_and_log_and_as_the_kind_sql_has_them(shop: Shop) -> None:
    columns = ", ".join(f"{name} {declared}" for name, (declared, _) in TYPED.items())
    values = ", ".join(value for _, value in TYPED.values())
    shop.run(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
        f"CREATE TABLE typed (id int PRIMARY KEY, {columns})",
        f"INSERT INTO typed VALUES (1, {values})",
        "INSERT INTO typed VALUES (2)",
    )
    shop.stream = stream_of("public.typed")
    discovered = shop.connector().discover(shop.stream)
    sql = {column.name: column.type for column in dialect_for(shop.url, {}).columns("public.typed")}
    assert {each.name: each.type for each in discovered if each.name != "_lsn"} == sql

    _, *snapshot = shop.next()
    shop.run("UPDATE typed SET id = id")
    log = shop.next()
    plain = [
        [{name: str(value) for name, value in record.items() if name != "_lsn"} for record in records]
        for records in (snapshot, log)
    ]
    assert plain[0] == plain[1]
    assert set(log[1]) - {"id", "_lsn", OPERATION} == TYPED.keys()
    assert all(log[1][name] is None for name in TYPED)
    full = log[0]
    assert (full["a_flag"], full["a_bytes"], full["a_fixed"]) == (True, b"\x00\xff", "ab   ")
    assert (full["a_price"], full["a_huge"]) == (Decimal("12.50"), Decimal("123456789012345678.12345678901234567890"))
    assert full["a_moment"].isoformat() == "2024-02-29T10:00:00.123456+00:00"
    assert (full["a_json"], full["a_list"], full["a_mood"], full["a_domain"]) == ('{"a":  1}', "{1,NULL,3}", "sad", "5")


@pytest.mark.service
def test_the_settings_of_a_role_do_not_change_what_is_read(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE typed (id int PRIMARY KEY, moment timestamptz, span interval, bytes bytea, number double precision)",
        "INSERT INTO typed VALUES (1, '2024-01-02 03:04:05+00', '1 day', '\\x41', 0.1)",
        *(
            f"ALTER DATABASE {shop.url.rpartition('/')[2]} SET {name} = {value}"
            for name, value in {
                "timezone": "'Asia/Tokyo'",
                "datestyle": "'German'",
                "intervalstyle": "iso_8601",
                "bytea_output": "escape",
                "extra_float_digits": "-10",
                "client_encoding": "latin1",
                "standard_conforming_strings": "off",
                "statement_timeout": "3000",
            }.items()
        ),
    )
    shop.stream = stream_of("public.typed")
    try:
        _, snapshot = shop.next()
        shop.run("UPDATE typed SET id = 1")
        (log,) = shop.next()
    finally:
        shop.run(f"ALTER DATABASE {shop.url.rpartition('/')[2]} RESET ALL")
    for record in (snapshot, log):
        assert record["moment"].isoformat() == "2024-01-02T03:04:05+00:00"
        assert (record["span"], record["bytes"], record["number"]) == ("1 day", b"A", 0.1)


@pytest.mark.service
@pytest.mark.parametrize("value", ["'infinity'", "'0044-03-15 BC'"])
def test_a_value_without_a_place_in_the_lake_is_named_without_being_shown(shop: Shop, value: str) -> None:
    shop.run("ALTER TABLE orders ADD day date")
    shop.next()
    shop.run(f"INSERT INTO orders VALUES (1, 'pen', {value})")
    for full in (False, True):
        with pytest.raises(SourceError, match="a value of 'day' is none that date32") as raised:
            shop.next(full=full)
        assert not isinstance(raised.value, SchemaRefused)
        assert "44" not in str(raised.value)
        assert raised.value.__context__ is None


@pytest.mark.service
def test_columns_that_come_and_go_in_the_log_are_all_there(following: Shop) -> None:
    following.run(
        "INSERT INTO orders VALUES (1, 'pen')",
        "ALTER TABLE orders ADD size int",
        "INSERT INTO orders VALUES (2, 'ink', 3)",
        "ALTER TABLE orders DROP COLUMN item",
        "INSERT INTO orders VALUES (3, 4)",
        "ALTER TABLE orders ADD colour text",
    )
    connector = following.connector()
    slices = following.pending()
    assert connector.fields(following.stream, slices).names == ["id", "size", "colour", "item", "_lsn"]
    found = [(each["id"], each["item"], each["size"], each["colour"]) for each in following.next()]
    assert found == [(1, "pen", None, None), (2, "ink", 3, None), (3, None, 4, None)]
    following.run("INSERT INTO orders VALUES (4, 5, 'red')")
    (record,) = following.next()
    assert {name: record[name] for name in record if not name.startswith("_")} == {"id": 4, "size": 5, "colour": "red"}


@pytest.mark.service
def test_a_type_that_changes_in_the_log_is_the_later_one_if_its_values_fit(following: Shop) -> None:
    following.run(
        "INSERT INTO orders VALUES (1, '12')",
        "ALTER TABLE orders ALTER item TYPE bigint USING item::bigint",
        "INSERT INTO orders VALUES (2, 34)",
    )
    assert following.connector().fields(following.stream, following.pending()).field("item").type == pa.int64()
    assert following.changes() == [("upsert", 1, 12), ("upsert", 2, 34)]


@pytest.mark.service
def test_a_type_that_changes_back_is_the_last_one(following: Shop) -> None:
    following.run(
        "INSERT INTO orders VALUES (1, '12')",
        "ALTER TABLE orders ALTER item TYPE bigint USING item::bigint",
        "INSERT INTO orders VALUES (2, 34)",
        "ALTER TABLE orders ALTER item TYPE text",
        "INSERT INTO orders VALUES (3, 'pen')",
    )
    assert following.changes() == [("upsert", 1, "12"), ("upsert", 2, "34"), ("upsert", 3, "pen")]


@pytest.mark.service
def test_a_column_of_before_the_position_is_known_to_the_changes_after_it(following: Shop) -> None:
    """The log describes a table once: here in a transaction that was read, and is still in the slot."""
    following.run("INSERT INTO orders VALUES (1, 'pen')")
    following.next(acknowledge=False)
    following.run("INSERT INTO orders VALUES (2, 'ink')", "ALTER TABLE orders DROP COLUMN item")
    assert following.changes() == [("upsert", 2, "ink")]


@pytest.mark.service
def test_a_type_that_changes_and_does_not_fit_is_refused_without_the_value(following: Shop) -> None:
    following.run(
        "INSERT INTO orders VALUES (1, 'secret')",
        "UPDATE orders SET item = '1'",
        "ALTER TABLE orders ALTER item TYPE boolean USING item::boolean",
        "INSERT INTO orders VALUES (2, true)",
    )
    with pytest.raises(SchemaRefused, match="the type of 'item' was changed") as raised:
        following.next()
    assert "secret" not in str(raised.value)
    assert following.changes(full=True)[1:] == [("upsert", 1, True), ("upsert", 2, True)]


@pytest.mark.service
def test_a_publication_of_some_columns_gives_those(shop: Shop) -> None:
    shop.run(
        "ALTER TABLE orders ADD secret text, ADD half int GENERATED ALWAYS AS (id / 2) STORED",
        "INSERT INTO orders VALUES (1, 'pen', 'hidden')",
        "CREATE PUBLICATION narrow FOR TABLE orders (id, item)",
    )
    assert shop.connector().discover(shop.stream).names == ["id", "item", "secret", "half", "_lsn"]
    shop.settings = {"publication": "narrow"}
    assert shop.connector().discover(shop.stream).names == ["id", "item", "_lsn"]
    assert "secret" not in shop.next()[1]
    shop.run("UPDATE orders SET item = 'ink'")
    assert "secret" not in shop.next()[0]


@pytest.mark.service
def test_generated_columns_are_in_snapshot_and_log(shop: Shop) -> None:
    shop.run("ALTER TABLE orders ADD half int GENERATED ALWAYS AS (id / 2) STORED", "INSERT INTO orders VALUES (8, 'pen')")
    assert shop.next()[1]["half"] == 4
    shop.run("INSERT INTO orders VALUES (10, 'ink')")
    assert shop.next()[0]["half"] == 5


# --- keys and identities -------------------------------------------------------------------------------------------------


@pytest.mark.service
def test_a_table_without_a_key_needs_its_whole_rows_in_the_log(shop: Shop) -> None:
    shop.run("CREATE TABLE loose (id int, item text)")
    shop.stream = stream_of("public.loose")
    with pytest.raises(SourceError, match=r"no replica identity.*REPLICA IDENTITY FULL"):
        shop.next()
    shop.run("ALTER TABLE loose REPLICA IDENTITY FULL")
    shop.next()
    shop.run(
        "INSERT INTO loose VALUES (1, 'pen')",
        "UPDATE loose SET item = 'ink'",
        "UPDATE loose SET id = 2",
        "DELETE FROM loose",
    )
    assert shop.changes() == [
        ("upsert", 1, "pen"), ("upsert", 1, "ink"), ("delete", 1, None), ("upsert", 2, "ink"), ("delete", 2, None),
    ]  # fmt: skip


@pytest.mark.service
def test_a_key_that_the_log_does_not_tell_is_refused(shop: Shop) -> None:
    shop.stream = stream_of("public.orders", "item")
    with pytest.raises(SourceError, match=r"the manifest's key is \(item\), but the log identifies deletions by \(id\)"):
        shop.next()
    shop.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.stream = stream_of("public.orders", "price")
    with pytest.raises(SourceError, match=r"has no field 'price'\. It has: id, item"):
        shop.next()
    shop.run("ALTER TABLE orders REPLICA IDENTITY NOTHING")
    with pytest.raises(SourceError, match="no replica identity"):
        shop.pending()


@pytest.mark.service
def test_a_key_by_an_index_is_as_good(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE parts (id int NOT NULL, item text)",
        "CREATE UNIQUE INDEX by_id ON parts (id) INCLUDE (item)",
        "ALTER TABLE parts REPLICA IDENTITY USING INDEX by_id",
    )
    assert [(each.source, each.key) for each in shop.connector().streams()] == [
        ("public.orders", ("id",)), ("public.parts", ("id",)),
    ]  # fmt: skip
    shop.stream = stream_of("public.parts")
    shop.next()
    shop.run("INSERT INTO parts VALUES (1, 'pen')", "DELETE FROM parts")
    assert shop.changes() == [("upsert", 1, "pen"), ("delete", 1, None)]


@pytest.mark.service
def test_an_identity_that_changed_in_the_log_is_named(following: Shop) -> None:
    following.run(
        "ALTER TABLE orders ALTER item SET NOT NULL",
        "CREATE UNIQUE INDEX by_item ON orders (item)",
        "ALTER TABLE orders REPLICA IDENTITY USING INDEX by_item",
        "INSERT INTO orders VALUES (1, 'pen')",
        "ALTER TABLE orders REPLICA IDENTITY DEFAULT",
    )
    with pytest.raises(SourceError, match="identifies changes by another key"):
        following.next()


@pytest.mark.service
def test_streams_are_the_tables_whose_deletions_the_log_tells(shop: Shop) -> None:
    shop.run(
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.pairs (b int, a int, PRIMARY KEY (b, a))",
        "COMMENT ON TABLE sales.pairs IS 'two'",
        "CREATE TABLE whole (id int)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE loose (id int)",
        "CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY)",
        "CREATE VIEW seen AS SELECT * FROM orders",
    )
    found = [(each.source, each.key, each.comment) for each in shop.connector().streams()]
    assert found == [
        ("public.orders", ("id",), None), ("public.whole", (), None), ("sales.pairs", ("b", "a"), "two"),
    ]  # fmt: skip


# --- what is lost, and what is refused ---------------------------------------------------------------------------------


@pytest.mark.service
def test_a_slot_that_is_gone_means_that_the_position_is_lost(following: Shop) -> None:
    drop_slots(following.url)
    with pytest.raises(PositionLost, match=r"the replication slot is not there.*tidemark stream run --full"):
        following.pending()
    assert following.checkpoint is not None
    following.connector().acknowledge(following.stream, following.checkpoint)
    assert following.changes(full=True) == [("truncate", None, None)]


@pytest.mark.service
def test_a_slot_dropped_between_planning_and_reading_means_the_same(following: Shop) -> None:
    following.run("INSERT INTO orders VALUES (1, 'pen')")
    slices = following.pending()
    drop_slots(following.url)
    with pytest.raises(PositionLost, match="can no longer be read from the committed position"):
        read(following.connector(), following.stream, slices)


@pytest.mark.service
def test_a_slot_that_the_server_gave_up_means_that_the_position_is_lost(following: Shop) -> None:
    settings = "SELECT pg_reload_conf()"
    following.run("INSERT INTO orders VALUES (1, 'pen')")
    following.next(acknowledge=False)
    following.run("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", settings)
    try:
        for _ in range(3):
            following.run("CREATE TABLE filler AS SELECT 1", "SELECT pg_switch_wal()", "DROP TABLE filler")
        following.run("CHECKPOINT")
        with pytest.raises(PositionLost, match="the server has given the replication slot up"):
            following.pending()
        assert following.checkpoint is not None
        following.connector().acknowledge(following.stream, following.checkpoint)
        assert following.changes(full=True) == [("truncate", None, None), ("upsert", 1, "pen")]
    finally:
        following.run("ALTER SYSTEM RESET max_slot_wal_keep_size", settings)


@pytest.mark.service
def test_a_slot_that_somebody_else_moved_means_that_the_position_is_lost(following: Shop) -> None:
    following.run("INSERT INTO orders VALUES (1, 'pen')")
    following.ask(f"SELECT * FROM pg_logical_slot_get_binary_changes('{following.slot}', NULL, NULL, 'proto_version', '1', "
                  f"'publication_names', '{following.slot}')")  # fmt: skip
    with pytest.raises(PositionLost, match="moved beyond the committed position"):
        following.pending()


@pytest.mark.service
def test_a_log_that_ends_before_the_position_means_that_the_source_was_restored(following: Shop) -> None:
    following.checkpoint = "FF/0"
    with pytest.raises(PositionLost, match="the server was restored"):
        following.pending()


@pytest.mark.service
@pytest.mark.parametrize(
    ("commands", "why"),
    [
        (["DROP PUBLICATION {publication}"], "the publication is gone"),
        (["ALTER PUBLICATION {publication} DROP TABLE orders"], "no longer in it"),
        (["DROP PUBLICATION {publication}", "CREATE PUBLICATION {publication} FOR TABLE orders"], "was re-created"),
        (
            ["DROP TABLE orders", "CREATE TABLE orders (id int PRIMARY KEY, item text)",
             "ALTER PUBLICATION {publication} ADD TABLE orders"],
            "was re-created",
        ),
    ],
)  # fmt: skip
def test_a_publication_that_was_away_means_that_changes_are_lost(following: Shop, commands: list[str], why: str) -> None:
    following.run(*(command.format(publication=following.slot) for command in commands))
    with pytest.raises(PositionLost, match=why):
        following.pending()
    following.run("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'pen')")
    assert following.changes(full=True) == [("truncate", None, None), ("upsert", 1, "pen")]
    following.run("DELETE FROM orders")
    assert following.changes() == [("delete", 1, None)]


@pytest.mark.service
def test_a_slot_in_use_is_left_alone(following: Shop) -> None:
    following.run("INSERT INTO orders VALUES (1, 'pen')")
    slot = following.slot
    other = psycopg.connect(following.url, autocommit=True, replication="database")
    try:
        options = f"(proto_version '1', publication_names '{slot}')"
        other.pgconn.send_query(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 {options}".encode())
        while not following.ask(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"):
            pass
        with pytest.raises(SourceError, match="the replication slot is in use") as raised:
            following.pending()
        assert not isinstance(raised.value, PositionLost)
        with pytest.raises(SourceError, match=f"the replication slot '{slot}' at .* is in use"):
            following.next(full=True)
    finally:
        other.close()
    while following.ask(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"):
        pass
    assert following.changes() == [("upsert", 1, "pen")]


@pytest.mark.service
def test_a_slot_of_another_database_is_left_alone(following: Shop) -> None:
    name = following.slot
    drop_slots(following.url)
    elsewhere = Shop(following.server, following.server.url())
    elsewhere.ask(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    with pytest.raises(PositionLost, match="slot is not there"):
        following.pending()
    with pytest.raises(SourceError, match="is not of pgoutput in this database"):
        following.next(full=True)
    drop_slots(elsewhere.url)


@pytest.mark.service
def test_a_transaction_that_stays_open_does_not_hold_a_first_run_for_ever(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemark.connectors.kinds import _cdc_database

    monkeypatch.setattr(_cdc_database, "SESSION", _cdc_database.SESSION.replace("'60s'", "'100ms'"))
    with psycopg.connect(shop.url) as slow:
        slow.execute("INSERT INTO orders VALUES (1, 'slow')")
        with pytest.raises(SourceError, match="for transactions that are still open"):
            shop.next()
    assert shop.changes() == [("truncate", None, None), ("upsert", 1, "slow")]


@pytest.mark.service
def test_a_publication_that_is_not_ours_is_not_made_and_must_tell_all(shop: Shop) -> None:
    shop.settings = {"publication": "theirs"}
    with pytest.raises(SourceError, match=r"there is no publication 'theirs' with 'public\.orders'"):
        shop.next()
    for publication in ("FOR TABLE orders WHERE (id > 5)", "FOR TABLE orders WITH (publish = 'insert, update, delete')"):
        shop.run(f"CREATE PUBLICATION theirs {publication}")
        with pytest.raises(SourceError, match="leaves out some rows, or some of insert"):
            shop.next()
        shop.run("DROP PUBLICATION theirs")
    shop.run('CREATE PUBLICATION "Their ""own""" FOR TABLES IN SCHEMA public')
    shop.settings = {"publication": 'Their "own"'}
    shop.next()
    shop.run("INSERT INTO orders VALUES (1, 'pen')")
    assert shop.changes() == [("upsert", 1, "pen")]
    shop.run('ALTER PUBLICATION "Their ""own""" SET (publish = \'insert\')')
    with pytest.raises(SourceError, match="leaves out some rows, or some of insert"):
        shop.pending()


@pytest.mark.service
def test_a_server_whose_log_lacks_what_is_needed_is_told_how_to_mend_it(pg: PostgresServer) -> None:
    url = pg.new_database()
    pg.execute(url, "CREATE TABLE orders (id int PRIMARY KEY)")
    for checkpoint in (None, "0/1"):
        with pytest.raises(SourceError, match=r"`wal_level = replica`.*`wal_level = logical`.*restart"):
            CdcConnector({"url": url}, {}).pending(stream_of(), checkpoint, 2)
    pg.drop_database(url)


@pytest.mark.service
def test_a_login_without_the_right_to_replicate_is_refused(shop: Shop) -> None:
    role = f"reader_{shop.url.rpartition('/')[2]}"
    shop.run(f"CREATE ROLE {role} LOGIN PASSWORD 'hidden word'", f"GRANT SELECT ON orders TO {role}")
    reader = Shop(shop.server, shop.url.replace("postgres@", f"{role}:wrong@"))
    with pytest.raises(SourceRefused, match="refused the login") as raised:
        reader.next()
    assert "wrong" not in str(raised.value)
    assert raised.value.__cause__ is None
    reader.url = shop.url.replace("postgres@", f"{role}:hidden%20word@")
    with pytest.raises(SourceRefused, match="the ownership of the table"):
        reader.next()
    shop.run("CREATE PUBLICATION all_orders FOR TABLE orders")
    reader.settings = {"publication": "all_orders"}
    with pytest.raises(SourceRefused, match=r"refuses this login a replication connection.*ALTER ROLE"):
        reader.next()
    shop.settings = reader.settings
    shop.next()
    reader.checkpoint = shop.checkpoint
    with pytest.raises(SourceRefused, match="the attribute REPLICATION"):
        reader.pending()
    shop.run(f"ALTER ROLE {role} REPLICATION", "INSERT INTO orders VALUES (1, 'pen')")
    assert reader.changes() == [("upsert", 1, "pen")]
    assert reader.changes(full=True) == [("truncate", None, None), ("upsert", 1, "pen")]
    shop.run(f"REVOKE SELECT ON orders FROM {role}")
    with pytest.raises(SourceRefused, match="SELECT on the table"):
        reader.next(full=True)
    shop.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.service
def test_a_login_in_the_credentials_is_used(shop: Shop) -> None:
    connector = CdcConnector({"url": shop.url.replace("postgres@", "")}, {"user": "postgres"})
    assert [each.source for each in connector.streams()] == ["public.orders"]


@pytest.mark.service
def test_two_streams_never_share_a_slot(shop: Shop) -> None:
    for id in ("shop.orders", "shop-orders", "shop.orders" + "x" * 80, "shop.orders" + "x" * 80 + "y"):
        shop.stream = stream_of().model_copy(update={"id": id})
        shop.settings = {"slot": "acme"}
        shop.next(full=True)
    names = [name for (name,) in shop.ask("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")]
    assert len(set(names)) == 4
    assert all(name.startswith("acme_shop_orders") and len(name) <= 63 for name in names)


@pytest.mark.service
def test_a_table_that_is_not_there_is_named(shop: Shop) -> None:
    shop.run("CREATE VIEW seen AS SELECT * FROM orders")
    for source in ("public.nothing", "public.seen"):
        shop.stream = stream_of(source)
        with pytest.raises(SourceError, match=f"there is no table '{source}'"):
            shop.next()


@pytest.mark.service
def test_every_request_waits_its_turn(following: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cdc_log, "FETCHED", 10)
    following.run("INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 95) AS i")
    slices = following.pending()
    turns: list[int] = []
    monkeypatch.setattr(CdcConnector, "pace", lambda self: turns.append(1))
    pages = following.connector().read(following.stream, slices[0], 10)
    assert next(pages).num_rows == 10
    # A page is given before the rest of its transaction is fetched.
    assert len(turns) < 6
    assert sum(page.num_rows for page in pages) == 85
    assert len(turns) >= 10


# --- without a server ----------------------------------------------------------------------------------------------------


@pytest.mark.fast
def test_nobody_there_is_told_as_such() -> None:
    from tests.services.ports import free_port

    connector = CdcConnector({"url": f"postgresql://someone:hidden@127.0.0.1:{free_port()}/shop"}, {})
    with pytest.raises(SourceUnreachable, match="does not answer") as raised:
        connector.pending(stream_of(), None, 2)
    assert "hidden" not in str(raised.value)


@pytest.mark.fast
def test_an_address_that_cannot_be_read_is_not_shown() -> None:
    connector = CdcConnector({"url": "postgresql://someone:hidden@127.0.0.1/shop?hidden=1"}, {})
    with pytest.raises(ConfigError, match="`url` cannot be read") as raised:
        connector.pending(stream_of(), None, 2)
    assert "hidden" not in str(raised.value)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "`url` is missing. It has: publication, slot, url"),
        ({"url": "postgresql://h/d", "table": "x"}, "unknown: table"),
        ({"url": "sqlite:///x.db"}, "`url` must start with postgresql://"),
        ({"url": "postgresql://h/d", "slot": "No-Slot"}, "`slot` must be"),
        ({"url": "postgresql://h/d", "publication": 5}, "`publication` must be"),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        CdcConnector(settings, {})


@pytest.mark.fast
def test_a_position_is_the_log_s_own_text_and_which_table_it_was() -> None:
    stream = stream_of()
    assert Position.parse("0/1A00F38", stream) == Position(0x1A00F38, "")
    assert str(Position.parse("1/00000A00@16390.16384", stream)) == "1/A00@16390.16384"
    for text in ("", "1A00F38", "0/XYZ", "0/1@x", '{"lsn": "0/1"}'):
        with pytest.raises(CursorInvalid, match="no place in a PostgreSQL log"):
            Position.parse(text, stream)


@pytest.mark.fast
def test_without_slices_the_checkpoint_stays() -> None:
    connector = CdcConnector({"url": "postgresql://h/d"}, {})
    assert connector.advanced(stream_of(), "0/5@1.2", []) == "0/5@1.2"
    assert connector.reachable(stream_of(), "1/2A") == "cursor >= '00000001/0000002A'"
    assert connector.reachable(stream_of(), None) == "false"


@pytest.mark.fast
def test_numbers_without_room_in_a_decimal_are_text() -> None:
    def modifier(precision: int, scale: int) -> int:
        return (precision << 16 | scale & 0x7FF) + 4

    assert arrow_type(1700, modifier(38, 10)) == pa.decimal128(38, 10)
    for odd in (modifier(39, 2), modifier(3, 5), modifier(5, -2), -1):
        assert arrow_type(1700, odd) == pa.string()
    assert arrow_type(99999, -1) == pa.string()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "type_"), [("yes", pa.bool_()), ("ff", pa.binary()), ("\\xzz", pa.binary()), ("1.005", pa.decimal128(5, 2))]
)
def test_texts_that_do_not_fit_a_type_are_not_bent_to_it(text: str, type_: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        from_texts(pa.array([text]), type_)
