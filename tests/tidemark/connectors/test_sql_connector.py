"""Tables of four databases, page by page: every record of a window once, whatever its cursor and its key are. No Spark."""

import os
import pickle
import random
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.services.databases import (
    Database,
    duckdb_database,
    mariadb_database,
    postgresql_database,
    sqlite_database,
)
from tests.services.mariadb import MariadbServer
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tidemark.connectors.bronze import greatest_cursor
from tidemark.connectors.contract import Slice, Window, fixed_window
from tidemark.connectors.kinds import sql
from tidemark.connectors.kinds._sql_dialects import adbc_driver, mariadb, postgresql
from tidemark.connectors.kinds.sql import SqlConnector
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SourceError, SourceRefused, SourceUnreachable

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def shared_postgresql(pg: PostgresServer) -> Database:
    """A database of PostgreSQL takes its time to be made: one for all tests, emptied for each."""
    return postgresql_database(pg)


@pytest.fixture(
    params=[
        pytest.param("postgresql", marks=pytest.mark.service),
        pytest.param("mariadb", marks=pytest.mark.service),
        pytest.param("sqlite", marks=pytest.mark.fast),
        "duckdb",  # no server, and yet no matter of milliseconds: opening a file takes 50 of them
    ]
)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "postgresql":
        emptied: Database = request.getfixturevalue("shared_postgresql")
        emptied.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        return emptied
    if request.param == "mariadb":
        return mariadb_database(request.getfixturevalue("maria"))
    return sqlite_database(tmp_path) if request.param == "sqlite" else duckdb_database(tmp_path)


def reader(db: Database) -> SqlConnector:
    return SqlConnector({"url": db.url}, {})


def spec(**words: Any) -> StreamSpec:
    return StreamSpec.model_validate({"id": "shop.orders", "key": ["id"], **words})


def pages(db: Database, stream: StreamSpec, window: Window | None = None, page_size: int = 2) -> list[pa.RecordBatch]:
    """All pages of all slices of a window, each of the discovered fields and none too large."""
    connector = reader(db)
    schema, found = connector.discover(stream), []
    for slice in connector.slices(stream, window or Window(), 4):
        for page in connector.read(stream, slice, page_size):
            assert page.schema == schema
            assert 0 < page.num_rows <= page_size
            found.append(page)
    return found


def read(db: Database, stream: StreamSpec, window: Window | None = None, page_size: int = 2) -> list[dict[str, Any]]:
    return [row for page in pages(db, stream, window, page_size) for row in page.to_pylist()]


def ids(db: Database, stream: StreamSpec, window: Window | None = None, page_size: int = 2) -> list[Any]:
    return [row["id"] for row in read(db, stream, window, page_size)]


def window_after(db: Database, stream: StreamSpec, state: str | None) -> Window:
    committed = None if state is None else stream.parse_cursor(state)
    return fixed_window(stream, committed, reader(db).now(stream))


@pytest.fixture
def orders(db: Database) -> Database:
    """Ten orders, one a minute until noon, two of them at noon exactly."""
    db.create("orders", id="bigint", item="text", updated_at="instant")
    moments = [NOON - timedelta(minutes=8 - n) for n in range(9)] + [NOON]
    db.put("orders", [(n, f"item {n}", moment) for n, moment in enumerate(moments)])
    return db


# --- the four rules of the seed ----------------------------------------------------------------------------------------


def test_it_respects_the_input_state_and_reads_nothing_older(orders: Database) -> None:
    stream = spec(cursor="updated_at")
    assert ids(orders, stream, window_after(orders, stream, "2026-01-01T11:57:00Z")) == [5, 6, 7, 8, 9]
    assert ids(orders, stream, window_after(orders, stream, None)) == list(range(10))


def test_the_records_of_all_pages_carry_the_maximum_cursor(orders: Database) -> None:
    stream = spec(cursor="updated_at")
    seen = [greatest_cursor(page, stream) for page in pages(orders, stream, window_after(orders, stream, None), 3)]
    assert max(cursor for cursor in seen if cursor is not None) == stream.parse_cursor("2026-01-01T12:00:00Z")


def test_reading_a_window_twice_gives_the_same_records_and_so_lands_nothing_twice(orders: Database) -> None:
    stream = spec(cursor="updated_at")
    window = window_after(orders, stream, "2026-01-01T11:55:00Z")
    first = read(orders, stream, window)
    orders.put("orders", [(11, "of tomorrow", datetime(2037, 1, 1, tzinfo=UTC))])
    assert read(orders, stream, window, page_size=5) == first
    assert len(first) == 7


def test_a_safety_window_reads_again_what_lies_before_the_state(orders: Database) -> None:
    stream = spec(cursor="updated_at", safety_window="PT2M")
    assert ids(orders, stream, window_after(orders, stream, "2026-01-01T12:00:00Z")) == [6, 7, 8, 9]


# --- cursors and pages -------------------------------------------------------------------------------------------------


def test_a_tie_larger_than_a_page_is_read_completely(db: Database) -> None:
    db.create("orders", id="bigint", updated_at="instant")
    db.put("orders", [(n, NOON) for n in range(11)])
    for size in (1, 3, 11):
        assert ids(db, spec(cursor="updated_at", page_size=size), page_size=size) == list(range(11))


def test_records_that_share_cursor_and_key_come_as_often_as_they_are_there(db: Database) -> None:
    db.create("orders", id="bigint", item="text", updated_at="instant")
    db.put("orders", [(min(n, 4), f"item {n}", NOON) for n in range(9)])
    for size in (1, 4, 20):
        found = read(db, spec(cursor="updated_at"), page_size=size)
        assert sorted(row["item"] for row in found) == [f"item {n}" for n in range(9)]


def test_two_readers_of_one_connector_do_not_disturb_each_other(orders: Database) -> None:
    stream, connector = spec(cursor="updated_at"), reader(orders)
    (slice,) = connector.slices(stream, Window(), 1)
    both = zip(connector.read(stream, slice, 3), connector.read(stream, slice, 3), strict=True)
    found = [(row["id"], other["id"]) for pages in both for row, other in zip(*(p.to_pylist() for p in pages), strict=True)]
    assert found == [(n, n) for n in range(10)]


@pytest.mark.parametrize("scheme", ["postgresql", "mariadb"])
def test_a_server_that_takes_a_connection_and_says_nothing_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adbc_driver.PATIENCE, "connect_timeout", 2)
    monkeypatch.setattr(mariadb, "ANSWER_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connector = SqlConnector({"url": f"{scheme}://u@127.0.0.1:{silent.getsockname()[1]}/shop"}, {})
        with pytest.raises(SourceUnreachable, match="broke off or does not answer"):
            connector.discover(spec(cursor="updated_at"))


@pytest.mark.fast
def test_a_connection_to_postgresql_is_given_up_when_the_server_is_gone_unless_its_address_says_otherwise() -> None:
    told = conninfo_to_dict(adbc_driver.address("postgresql://u@h/d?connect_timeout=3&client_encoding=LATIN1"))
    assert (told["keepalives_idle"], told["keepalives_interval"], told["keepalives_count"]) == ("10", "5", "4")
    assert (told["connect_timeout"], told["client_encoding"]) == ("3", "UTF8")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_it_makes_no_difference_in_which_batches_a_driver_gives_a_page(db: Database, size: int) -> None:
    db.create("orders", id="bigint", item="text", updated_at="instant")
    db.put("orders", [(n // 3, f"item {n}", NOON) for n in range(12)])
    connector, stream = reader(db), spec(cursor="updated_at")
    whole = connector._dialect.rows

    def one_by_one(*asked: Any) -> Iterator[pa.RecordBatch]:
        for batch in whole(*asked):
            yield from [batch.slice(0, 0), *(batch.slice(place, 1) for place in range(batch.num_rows))]

    connector._dialect.rows = one_by_one  # type: ignore[method-assign]
    (slice,) = connector.slices(stream, Window(), 1)
    found = [row["item"] for page in connector.read(stream, slice, size) for row in page.to_pylist()]
    assert sorted(found) == sorted(f"item {n}" for n in range(12))


@pytest.mark.parametrize(
    ("type", "own", "values"),
    [
        ("integer", "bigint", [-3, 2, 9, 10, 100, 2**62]),
        ("decimal", "money", [Decimal(text) for text in ("-1.5", "2", "9.000001", "9.5", "10.25", "99999999999.125")]),
        ("text", "text", ["A", "B", "a", "b", "z", "ä"]),
    ],
)
def test_numbers_and_texts_are_cursors_in_their_own_order(db: Database, type: str, own: str, values: list[Any]) -> None:
    db.create("orders", id="bigint", place=own)
    db.put("orders", [(n, value) for n, value in enumerate(values)][::-1])
    stream = spec(cursor="place", cursor_type=type)
    window = window_after(db, stream, str(values[2]))
    assert window.upper == stream.parse_cursor(values[-1])
    assert ids(db, stream, window) == [2, 3, 4, 5]
    assert reader(db).count(stream, window) == 4
    assert ids(db, stream, Window(upper=stream.parse_cursor(values[2]))) == [0, 1]


def test_a_composite_cursor_is_compared_part_by_part(db: Database) -> None:
    db.create("orders", id="bigint", day="instant", number="bigint")
    rows = [(10 * day + number, NOON + timedelta(days=day), number) for day in range(3) for number in range(4)]
    db.put("orders", rows[::-1])
    stream = spec(cursor=["day", "number"], cursor_type=["timestamp", "integer"])
    lower = stream.parse_cursor(["2026-01-02T12:00:00Z", 2])
    assert ids(db, stream, Window(lower)) == [12, 13, 20, 21, 22, 23]
    assert ids(db, stream, Window(upper=lower, closed=True), 5) == [0, 1, 2, 3, 10, 11, 12]
    # A bound with fewer parts stands for all that begin with it.
    assert ids(db, stream, Window(upper=stream.parse_cursor(["2026-01-02T12:00:00Z"]))) == [0, 1, 2, 3]


def test_records_without_a_cursor_are_a_slice_of_their_own(db: Database) -> None:
    db.create("orders", id="bigint", updated_at="instant")
    db.put("orders", [(n, NOON if n % 2 else None) for n in range(7)])
    connector, stream = reader(db), spec(cursor="updated_at", null_cursor="include")
    first, second = connector.slices(stream, Window(), 4)
    assert (first.nulls, second.nulls) == (False, True)
    assert [row["id"] for page in connector.read(stream, second, 2) for row in page.to_pylist()] == [0, 2, 4, 6]
    assert ids(db, stream) == [1, 3, 5, 0, 2, 4, 6]
    assert ids(db, spec(cursor="updated_at", null_cursor="exclude")) == [1, 3, 5]


def test_records_that_lack_a_part_of_their_key_come_last_and_are_no_keys(db: Database) -> None:
    db.create("orders", id="bigint", line="bigint", updated_at="instant")
    db.put("orders", [(1, 1, NOON), (None, 1, NOON), (2, None, NOON), (1, 2, NOON), (None, None, NOON)])
    stream = spec(key=["id", "line"], cursor="updated_at")
    found = [(row["id"], row["line"]) for row in read(db, stream, page_size=1)]
    assert found[:2] == [(1, 1), (1, 2)]
    assert set(found[2:]) == {(None, 1), (2, None), (None, None)}
    listed = [row for page in reader(db).keys(stream, 1) for row in page.to_pylist()]
    assert listed == [{"id": 1, "line": 1}, {"id": 1, "line": 2}]


def test_microseconds_are_kept_and_bound_a_window(db: Database) -> None:
    # SQLite compares times to the millisecond, and keeps their text.
    step = timedelta(milliseconds=1) if db.name == "sqlite" else timedelta(microseconds=1)
    moments = [NOON + timedelta(microseconds=123456) + step * n for n in range(4)]
    db.create("orders", id="bigint", updated_at="instant")
    db.put("orders", list(enumerate(moments)))
    stream = spec(cursor="updated_at")
    found = read(db, stream, Window(stream.parse_cursor(moments[1]), stream.parse_cursor(moments[3])), 1)
    told = [row["updated_at"] for row in found]
    assert [datetime.fromisoformat(each) if isinstance(each, str) else each for each in told] == moments[1:3]


def test_a_clock_without_a_zone_is_read_in_the_zone_of_the_manifest(db: Database) -> None:
    if db.name == "sqlite":
        with pytest.raises(ConfigError, match="SQLite knows no time zones"):
            reader(db).now(spec(cursor="at", cursor_zone="Asia/Tokyo"))
        return
    db.create("orders", id="bigint", at="clock")
    db.put("orders", [(hour, datetime(2026, 1, 1, hour)) for hour in range(8, 13)])  # noqa: DTZ001 - that is the point
    stream = spec(cursor="at", cursor_zone="Asia/Tokyo")
    window = Window(stream.parse_cursor("2026-01-01T00:00:00Z"), stream.parse_cursor("2026-01-01T03:00:00Z"))
    assert ids(db, stream, window) == [9, 10, 11]
    now = reader(db).now(stream)
    assert now is not None
    assert now.timestamp is not None
    assert abs(now.timestamp.instant / 1e9 - datetime.now(UTC).timestamp()) < 60


def test_the_source_tells_the_time_in_utc_whatever_its_own_zone_is(orders: Database) -> None:
    now = reader(orders).now(spec(cursor="updated_at"))
    assert now is not None
    assert now.timestamp is not None
    assert abs(now.timestamp.instant / 1e9 - datetime.now(UTC).timestamp()) < 60


def test_a_cursor_of_another_order_than_its_column_is_refused(db: Database) -> None:
    db.create("orders", id="bigint", number="text", updated_at="instant")
    wrong = [("number", "integer"), ("number", "decimal"), ("updated_at", "integer"), ("id", "text"), ("id", "timestamp")]
    wrong += [] if db.name == "sqlite" else [("number", "timestamp"), ("updated_at", "text")]  # times are texts there
    for field, type in wrong:
        with pytest.raises(ConfigError, match=f"'{field}' is .* at the source, which is in another order"):
            reader(db).now(spec(cursor=field, cursor_type=type))


def test_slices_meet_each_other_at_values_and_hold_every_record_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "LEAST_ROWS", 1)
    db.create("orders", id="bigint", updated_at="instant")
    db.put("orders", [(n, NOON + timedelta(minutes=n // 3)) for n in range(20)])
    stream, connector = spec(cursor="updated_at"), reader(db)
    window = window_after(db, stream, "2026-01-01T12:00:00Z")
    slices = connector.slices(stream, window, 4)
    assert len(slices) >= 3
    assert [each.number for each in slices] == list(range(len(slices)))
    assert [each.upper for each in slices[:-1]] == [each.lower for each in slices[1:]]
    assert (slices[0].lower, slices[-1].upper) == (str(window.lower), str(window.upper))
    assert ids(db, stream, window) == list(range(20))


@pytest.mark.service
@pytest.mark.parametrize("source", ["orders", "seen"])
def test_a_large_table_is_cut_by_a_sample_and_a_view_by_all_of_it(
    shared_postgresql: Database, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = shared_postgresql
    db.execute(
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        "CREATE TABLE orders AS SELECT n AS id, timestamptz '2026-01-01' + n * interval '1 second' AS updated_at "
        "FROM generate_series(0, 99999) AS n",
        "CREATE VIEW seen AS SELECT * FROM orders",
    )
    stream, connector = spec(cursor="updated_at", source=source), reader(db)
    window = window_after(db, stream, None)
    slices = connector.slices(stream, window, 5)
    assert connector.slices(stream, window, 5) == slices
    read = [[n for page in connector.read(stream, each, 1000) for n in page["id"].to_pylist()] for each in slices]
    assert [n for each in read for n in each] == list(range(100_000))
    assert len(slices) == 5
    assert all(15_000 < len(each) < 25_000 for each in read)
    assert ({len(each) for each in read} == {20_000}) == (source == "seen")


@pytest.mark.service
def test_a_server_that_breaks_off_half_way_is_told_as_that(shared_postgresql: Database) -> None:
    db = shared_postgresql
    db.execute(
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        "CREATE TABLE orders AS SELECT n AS id, repeat('x', 1000) AS item FROM generate_series(1, 60000) AS n",
    )
    with SqlConnector({"url": db.url}, {}) as connector:
        pages = connector.read(spec(), Slice(0), 100_000)
        next(pages)
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT%'")
        with pytest.raises(SourceUnreachable, match="broke off"):
            list(pages)
        # The next question finds the server well.
        assert sum(page.num_rows for page in connector.read(spec(), Slice(0), 100_000)) == 60_000


# --- names and values --------------------------------------------------------------------------------------------------


ODD = ["select", "Order Id", 'a"b', "it's", "back`tick", "UPPER", "naïve ☃", "per%cent", "semi;colon--", "with.dot"]


def test_odd_names_are_names(db: Database) -> None:
    for odd in ODD:
        db.create(odd, **{odd: "bigint", "other": "text"})
        db.put(odd, [(n, "x") for n in range(3)])
    connector = reader(db)
    for odd in ODD:
        stream = spec(source='"' + odd.replace('"', '""') + '"', key=[odd], cursor=odd, cursor_type="integer")
        assert [row[odd] for page in connector.read(stream, Slice(0, "1"), 2) for row in page.to_pylist()] == [1, 2]
    schema = db.url.rpartition("/")[2] if db.name == "mariadb" else ""  # a server's databases are its schemas there
    listed = [each.source for each in connector.streams() if each.source.startswith(schema)]
    found = [connector.discover(spec(source=source)).names for source in listed]
    assert sorted(found) == sorted([odd, "other"] for odd in ODD)


HOSTILE = [
    *(
        "",
        " ",
        "a",
        "A",
        "a ",
        "a  ",
        "ä",
        "Ä",
        "ａ",
        "a\t",
        "a\n",
        "'",
        "''",
        "'; DROP TABLE orders; --",
        "\\",
        "\\\\",
        "\\'",
    ),
    *(
        "\\x41",
        '"',
        "`",
        "%s",
        "%",
        "_",
        "?",
        ":id",
        "{}",
        "$1",
        "NULL",
        "😀",
        "👩‍👩‍👧",
        "\u200b",
        "ß",
        "ss",
        "ſ",
        "I",
        "ı",
        "i",
        "İ",
    ),
    *("~" * 199, "\x01", "\x7f", "e\u0301", "é", "000", "0", "1e1", "10"),
]


def test_hostile_texts_are_keys_like_any_other(db: Database) -> None:
    texts = HOSTILE if db.name == "postgresql" else [*HOSTILE, "nul\x00a", "nul\x00b", "nul\x00"]
    db.create("orders", id="text", updated_at="instant")
    db.put("orders", [(text, NOON) for text in texts])
    by_code_point = sorted(texts)
    for stream in (spec(cursor="updated_at"), spec(cursor="id", cursor_type="text")):
        assert ids(db, stream, window_after(db, stream, None), page_size=7) == by_code_point
    listed = [row["id"] for page in reader(db).keys(spec(), 1) for row in page.to_pylist()]
    assert listed == by_code_point


def test_a_collation_that_takes_letters_for_equal_loses_none(db: Database) -> None:
    # The PostgreSQL of the tests is built without ICU, which has the loose ones.
    collations = {"postgresql": "", "mariadb": "COLLATE utf8mb4_general_ci"}
    collation = collations.get(db.name, "COLLATE NOCASE")
    db.create("orders", id=f"varchar(20) {collation}", item="text")
    texts = ["a", "A", "ä", "Ä", "b", "B", "a "]
    db.put("orders", [(text, str(n)) for n, text in enumerate(texts)])
    for size in (1, 2, 3):
        assert ids(db, spec(), page_size=size) == sorted(texts)
    stream = spec(cursor="id", cursor_type="text")
    assert ids(db, stream, window_after(db, stream, "a"), 1) == ["a", "a ", "b", "Ä", "ä"]


def test_bytes_are_keys(db: Database) -> None:
    values = sorted(bytes([n, 0, 255 - n, 39, 92]) for n in range(0, 256, 15))
    db.create("orders", id="bytes")
    db.put("orders", [(value,) for value in values[::-1]])
    assert ids(db, spec()) == values


# --- keys --------------------------------------------------------------------------------------------------------------


def test_all_keys_are_listed_whatever_the_cursor_says(orders: Database) -> None:
    orders.put("orders", [(20, "no cursor", None), (21, "of tomorrow", datetime(2037, 1, 1, tzinfo=UTC))])
    connector = reader(orders)
    for size in (1, 3, 100):
        found = list(connector.keys(spec(cursor="updated_at"), size))
        assert {page.schema for page in found} == {pa.schema([("id", pa.int64())])}
        assert all(0 < page.num_rows <= size for page in found)
        assert [row["id"] for page in found for row in page.to_pylist()] == [*range(10), 20, 21]


# --- what is not there, and what does not answer -----------------------------------------------------------------------


def test_an_empty_table_has_no_pages_and_no_keys(db: Database) -> None:
    db.create("orders", id="bigint", number="bigint", updated_at="instant")
    assert read(db, spec(cursor="updated_at")) == []
    assert read(db, spec()) == []
    assert list(reader(db).keys(spec(), 10)) == []
    assert reader(db).now(spec(cursor="number", cursor_type="integer")) is None


def test_a_missing_table_and_a_missing_field_are_named(orders: Database) -> None:
    with pytest.raises(SourceError, match="there is no table or view 'orderz'"):
        reader(orders).discover(spec(source="orderz"))
    with pytest.raises(SourceError, match=r"'orders' has no field 'changed_at'\. It has: id, item, updated_at"):
        reader(orders).now(spec(cursor="changed_at"))
    with pytest.raises(SourceError, match="'orders' has no field 'number'"):
        list(reader(orders).keys(spec(key=["number"]), 10))


def test_a_connector_is_picklable_before_and_after_its_use(orders: Database) -> None:
    stream, connector = spec(cursor="updated_at"), reader(orders)
    (slice,) = connector.slices(stream, Window(), 4)
    again = pickle.loads(pickle.dumps(connector))
    assert sum(page.num_rows for page in again.read(stream, slice, 3)) == 10


def test_every_question_to_the_source_keeps_the_pace(orders: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    connector, asked = reader(orders), []
    monkeypatch.setattr(connector, "pace", lambda: asked.append("now"))
    for question in ("columns", "present", "fetch", "tables"):
        own = getattr(connector._dialect, question)

        def paced(*given: Any, own: Any = own) -> Any:
            assert asked.pop() == "now"
            return own(*given)

        monkeypatch.setattr(connector._dialect, question, paced)
    stream = spec(cursor="updated_at", null_cursor="include")
    connector.streams()
    connector.discover(stream)
    window = fixed_window(stream, None, connector.now(stream))
    connector.count(stream, window)
    for slice in connector.slices(stream, window, 2):
        assert len(list(connector.read(stream, slice, 3))) > 3
    assert len(list(connector.keys(stream, 3))) > 3


def test_pages_that_do_not_get_on_end_with_an_error(orders: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = reader(orders)
    monkeypatch.setattr(connector._dialect, "literal", lambda column, value: "-1")
    with pytest.raises(SourceError, match="gives the same page again and again"):
        list(connector.keys(spec(), 3))


@pytest.mark.parametrize("scheme", ["postgresql", "mariadb", "mysql"])
@pytest.mark.fast
def test_a_server_that_is_not_there_is_unreachable(scheme: str) -> None:
    connector = SqlConnector({"url": f"{scheme}://127.0.0.1:{free_port()}/shop"}, {"user": "me", "password": "s3cret"})
    for question in (connector.streams, lambda: connector.discover(spec())):
        with pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1:\d+/shop") as told:
            question()
        assert "s3cret" not in str(told.value)


@pytest.mark.fast
def test_a_file_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    for scheme in ("sqlite", "duckdb"):
        with pytest.raises(SourceUnreachable, match=f"{scheme} file none"):
            SqlConnector({"url": f"{scheme}:///{tmp_path}/none"}, {}).discover(spec())


@pytest.mark.service
@pytest.mark.parametrize("name", ["postgresql", "mariadb"])
def test_a_wrong_password_is_refused_and_never_told(request: pytest.FixtureRequest, name: str) -> None:
    if name == "postgresql":
        server = request.getfixturevalue("pg")
        server.execute(server.url(), "CREATE ROLE somebody LOGIN PASSWORD 'right'")
        url = server.url("postgres", "somebody", "wr0ng-secret")
    else:
        url = request.getfixturevalue("maria").url("mysql", "reader", "wr0ng-secret")
    connector = SqlConnector({"url": url}, {})
    for question in (connector.streams, lambda: connector.discover(spec()), lambda: connector.now(spec(cursor="at"))):
        with pytest.raises(SourceRefused, match="login") as told:
            question()
        assert "wr0ng" not in f"{told.value!r} {connector!r}"
        assert told.value.__cause__ is None


@pytest.mark.service
def test_a_table_that_somebody_else_has_locked_is_not_waited_for_for_ever(
    pg: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = postgresql_database(pg)
    db.create("orders", id="bigint", at="instant")
    db.put("orders", [(1, NOON)])
    brief = adbc_driver.SETTING.replace("'60s'", "'100ms'")
    assert brief != adbc_driver.SETTING
    monkeypatch.setattr(adbc_driver, "SETTING", brief)
    with psycopg.connect(db.url) as holder:
        holder.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceError, match=r"shop\.orders: .* is locked, and was not let go within 60 s"):
            pages(db, spec(source="orders", cursor="at"))
        monkeypatch.setattr(postgresql, "LOCK_SECONDS", 0.1)
        with pytest.raises(SourceError, match="is locked"):
            reader(db)._dialect.about("orders", "true", "shop.orders")
    assert sum(page.num_rows for page in pages(db, spec(source="orders", cursor="at"))) == 1


@pytest.mark.service
def test_mariadb_too_gives_up_waiting_for_a_lock(maria: MariadbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    db = mariadb_database(maria)
    db.create("orders", id="bigint", at="instant")
    db.put("orders", [(1, NOON)])
    (words,) = mariadb.SESSION
    brief = words.replace("lock_wait_timeout = 60", "lock_wait_timeout = 1")
    assert brief != words
    monkeypatch.setattr(mariadb, "SESSION", (brief,))
    with maria.connected(db.url.rpartition("/")[2]) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES orders WRITE")
        with pytest.raises(SourceError, match="is locked, and was not let go within 60 s"):
            pages(db, spec(source="orders", cursor="at"))
    assert sum(page.num_rows for page in pages(db, spec(source="orders", cursor="at"))) == 1


@pytest.mark.fast
def test_wrong_settings_are_told_without_the_address() -> None:
    with pytest.raises(ConfigError, match="unknown: adress"):
        SqlConnector({"adress": "x"}, {})
    with pytest.raises(ConfigError, match="`url` is missing"):
        SqlConnector({}, {})
    with pytest.raises(ConfigError, match="must start with one of postgresql://, mariadb://, sqlite://, duckdb://") as told:
        SqlConnector({"url": "oracle://me:s3cret@host/db"}, {})
    assert "s3cret" not in str(told.value)
    for wrong in ("mariadb:///shop", "mysql://me:s3cret@host/shop?compress=true", "mariadb://me:s3/cret@host/shop"):
        with pytest.raises(ConfigError) as told:
            SqlConnector({"url": wrong}, {})
        assert "cret" not in str(told.value)
    for odd in ("postgresql://me:s3\u2100cret@host/shop", "postgresql://me:s3[cret@host/shop"):
        with pytest.raises(ConfigError, match="%XX") as told:
            SqlConnector({"url": odd}, {})
        assert "cret" not in str(told.value)
    with pytest.raises(SourceUnreachable) as gone:
        list(SqlConnector({"url": "postgresql://me:s3%zzcret@127.0.0.1/shop"}, {}).read(spec(), Slice(0), 1))
    assert "cret" not in str(gone.value)


# --- the property ------------------------------------------------------------------------------------------------------

MOMENTS = [NOON + timedelta(milliseconds=each) for each in (0, 1, 999, 1000, 60_000)]
SHAPES: list[tuple[dict[str, str], list[str], dict[str, list[Any]]]] = [
    ({"c": "bigint"}, ["integer"], {"c": [-1, 0, 2, 10]}),
    ({"c": "money"}, ["decimal"], {"c": [Decimal("-0.5"), Decimal("0"), Decimal("9.5"), Decimal("10")]}),
    ({"c": "text"}, ["text"], {"c": ["", "a", "A", "ä", "a ", "'\\"]}),
    ({"c": "instant"}, ["timestamp"], {"c": MOMENTS}),
    ({"c": "instant", "d": "text"}, ["timestamp", "text"], {"c": MOMENTS[:2], "d": ["a", "A", "b"]}),
    ({"c": "bigint", "d": "bigint"}, ["integer", "integer"], {"c": [1, 2], "d": [1, 2, 3]}),
]


def test_all_slices_together_hold_every_record_of_a_window_exactly_once(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random tables with many equal cursors, random keys, windows, page sizes and slices. SEED=… replays a failure."""
    monkeypatch.setattr(sql, "LEAST_ROWS", 1)
    seed = int(os.environ.get("SEED", random.randrange(10**9)))
    sys.stdout.write(f"SEED={seed}\n")  # seen when the test fails
    chance = random.Random(seed)
    for number in range(2 * len(SHAPES)):
        fields, types, values = SHAPES[number % len(SHAPES)]
        table = f"t{number}"
        db.create(table, id="bigint", k="text", **fields, n="bigint")
        cursors = [tuple(chance.choice([*values[name], None]) for name in fields) for _ in range(chance.randrange(25))]
        rows = [(chance.randrange(4), chance.choice("aAäb"), *cursor, n) for n, cursor in enumerate(cursors)]
        db.put(table, rows)
        stream = StreamSpec.model_validate(
            {
                "id": "shop.orders",
                "source": table,
                "key": ["id", "k"],
                "null_cursor": chance.choice(["include", "exclude"]),
                "cursor": list(fields),
                "cursor_type": types[0] if len(types) == 1 else types,
            }
        )
        parsed = {
            n: stream.parse_cursor(list(cursor) if len(fields) > 1 else cursor[0])
            for n, cursor in enumerate(cursors)
            if None not in cursor
        }
        some = [None, *parsed.values()]
        window = Window(chance.choice(some), chance.choice(some), chance.random() < 0.5)
        expected = [n for n, cursor in parsed.items() if cursor in window]
        if stream.null_cursor == "include" and not window.empty:
            expected += [n for n in range(len(rows)) if n not in parsed]
        page_size, parallel = chance.randint(1, 8), chance.randint(1, 6)
        told = f"SEED={seed}, table {number} of {db.name}: pages of {page_size}, {parallel} slices"
        connector, found = reader(db), []
        with connector._dialect.held(stream.id):
            for slice in connector.slices(stream, window, parallel):
                read_here = [row["n"] for page in connector.read(stream, slice, page_size) for row in page.to_pylist()]
                order = [parsed[n] for n in read_here if n in parsed]
                assert order == sorted(order), told
                found += read_here
            assert sorted(found) == sorted(expected), told
            assert connector.count(stream, window) == len([n for n in expected if n in parsed]), told


def test_a_slice_has_no_records_of_its_neighbours(orders: Database) -> None:
    connector, stream = reader(orders), spec(cursor="updated_at")
    first = Slice(0, None, "2026-01-01T11:55:00Z")
    second = Slice(1, "2026-01-01T11:55:00Z", "2026-01-01T12:00:00Z", closed=True)
    counted = [
        [row["id"] for page in connector.read(stream, each, 4) for row in page.to_pylist()] for each in (first, second)
    ]
    assert counted == [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9]]
