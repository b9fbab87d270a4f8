"""Values of every type that a database has, as they arrive: none rounded, none shifted, none rewritten."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.services.databases import Database, duckdb_database, mariadb_database, postgresql_database, sqlite_database
from tests.services.mariadb import MariadbServer
from tests.services.postgres import PostgresServer
from tidemark.connectors.contract import Slice, Window
from tidemark.connectors.kinds.sql import SqlConnector
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import CursorInvalid, SourceError

INSTANT, CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
MOMENT = datetime(2026, 2, 3, 4, 5, 6, 789012)  # noqa: DTZ001 - a clock without a zone

# What is declared, what is written into it, as what type it arrives, and what it is then.
Case = tuple[str, str, pa.DataType, Any]

POSTGRESQL: list[Case] = [
    ("smallint", "-32768", pa.int16(), -32768),
    ("int", "2147483647", pa.int32(), 2147483647),
    ("bigint", "-9223372036854775808", pa.int64(), -(2**63)),
    ("real", "0.1", pa.float32(), pytest.approx(0.1, rel=1e-6)),
    ("double precision", "0.1", pa.float64(), 0.1),
    ("numeric(12, 3)", "-123456789.125", pa.decimal128(12, 3), Decimal("-123456789.125")),
    ("numeric(38, 18)", "'12345678901234567890.123456789012345678'", pa.decimal128(38, 18),
     Decimal("12345678901234567890.123456789012345678")),
    ("numeric", "'1e40'", pa.string(), "1" + "0" * 40),
    ("boolean", "true", pa.bool_(), True),
    ("date", "'2026-02-03'", pa.date32(), date(2026, 2, 3)),
    ("timestamp", "'2026-02-03 04:05:06.789012'", CLOCK, MOMENT),
    ("timestamptz", "'2026-02-03 06:05:06.789012+02'", INSTANT, MOMENT.replace(tzinfo=UTC)),
    ("time", "'23:59:59.999999'", pa.string(), "23:59:59.999999"),
    ("interval", "'1 day 2 hours'", pa.string(), "1 day 02:00:00"),
    ("bytea", "'\\x00ff27'", pa.binary(), b"\x00\xff'"),
    ("uuid", "'123e4567-e89b-12d3-a456-426614174000'", pa.string(), "123e4567-e89b-12d3-a456-426614174000"),
    ("json", """'{"b": 1.50,  "a": "😀"}'""", pa.string(), '{"b": 1.50,  "a": "😀"}'),
    ("int[]", "'{1,NULL,3}'", pa.string(), "{1,NULL,3}"),
    ("text", "'emoji 😀 ''quoted'' \\ back'", pa.string(), "emoji 😀 'quoted' \\ back"),
    ("char(5)", "'ab'", pa.string(), "ab   "),
]  # fmt: skip

MARIADB: list[Case] = [
    ("tinyint", "-128", pa.int8(), -128),
    ("tinyint(1)", "2", pa.int8(), 2),  # a flag by habit only
    ("tinyint unsigned", "255", pa.int16(), 255),
    ("smallint unsigned", "65535", pa.int32(), 65535),
    ("mediumint", "-8388608", pa.int32(), -8388608),
    ("mediumint unsigned", "16777215", pa.int32(), 16777215),
    ("int", "-2147483648", pa.int32(), -2147483648),
    ("int unsigned", "4294967295", pa.int64(), 4294967295),
    ("int(5) unsigned zerofill", "42", pa.int64(), 42),
    ("bigint", "-9223372036854775808", pa.int64(), -(2**63)),
    ("bigint unsigned", "18446744073709551615", pa.decimal128(20, 0), Decimal(2**64 - 1)),
    ("bit(1)", "b'1'", pa.bool_(), True),
    ("bit(13)", "b'1000000000001'", pa.int64(), 4097),
    ("bit(64)", "18446744073709551615", pa.decimal128(20, 0), Decimal(2**64 - 1)),
    ("year", "2026", pa.int16(), 2026),
    ("float", "0.1", pa.float32(), pytest.approx(0.1, rel=1e-7)),
    ("double", "0.1", pa.float64(), 0.1),
    ("decimal(12, 3)", "-123456789.125", pa.decimal128(12, 3), Decimal("-123456789.125")),
    ("decimal(28, 10)", "123456789012345678.1234567891", pa.decimal128(28, 10), Decimal("123456789012345678.1234567891")),
    ("decimal(38, 18)", "12345678901234567890.123456789012345678", pa.decimal128(38, 18),
     Decimal("12345678901234567890.123456789012345678")),
    ("decimal(65, 0)", "9" * 65, pa.string(), "9" * 65),
    ("date", "'2026-02-03'", pa.date32(), date(2026, 2, 3)),
    ("date", "'9999-12-31'", pa.date32(), date(9999, 12, 31)),
    ("datetime", "'2026-02-03 04:05:06'", CLOCK, MOMENT.replace(microsecond=0)),
    ("datetime(3)", "'2026-02-03 04:05:06.789'", CLOCK, MOMENT.replace(microsecond=789000)),
    ("datetime(6)", "'2026-02-03 04:05:06.789012'", CLOCK, MOMENT),
    ("datetime(6)", "'0001-01-01 00:00:00.000001'", CLOCK, datetime(1, 1, 1, microsecond=1)),  # noqa: DTZ001
    ("timestamp(6) NULL", "'2026-02-03 04:05:06.789012'", INSTANT, MOMENT.replace(tzinfo=UTC)),
    ("time", "'-838:59:59'", pa.string(), "-838:59:59"),
    ("time(6)", "'23:59:59.999999'", pa.string(), "23:59:59.999999"),
    ("json", """'{"b": 1.50,  "a": "😀"}'""", pa.string(), '{"b": 1.50,  "a": "😀"}'),
    ("blob", "X'00ff27'", pa.binary(), b"\x00\xff'"),
    ("binary(4)", "X'00ff'", pa.binary(), b"\x00\xff\x00\x00"),
    ("varchar(50)", "'emoji 😀 ''quoted'' \\ back'", pa.string(), "emoji 😀 'quoted' \\ back"),
    ("varchar(50) CHARACTER SET latin1", "'Größe'", pa.string(), "Größe"),
    ("longtext", "'long'", pa.string(), "long"),
    ("enum('small', 'large')", "'large'", pa.string(), "large"),
    ("set('a', 'b', 'c')", "'c,a'", pa.string(), "a,c"),
    ("uuid", "'123e4567-e89b-12d3-a456-426614174000'", pa.string(), "123e4567-e89b-12d3-a456-426614174000"),
    ("inet6", "'2001:db8::1'", pa.string(), "2001:db8::1"),
    ("point", "point(1, 2)", pa.binary(), bytes.fromhex("0101000000000000000000f03f0000000000000040")),
]  # fmt: skip

SQLITE: list[Case] = [
    ("INTEGER", "-9223372036854775808", pa.int64(), -(2**63)),
    ("REAL", "0.1", pa.float64(), 0.1),
    ("NUMERIC", "12.5", pa.string(), "12.5"),
    ("TEXT", "'emoji 😀 ''quoted'' \\ back'", pa.string(), "emoji 😀 'quoted' \\ back"),
    ("DATETIME", "'2026-02-03T04:05:06.789012Z'", pa.string(), "2026-02-03T04:05:06.789012Z"),
    ("BLOB", "X'00ff27'", pa.binary(), b"\x00\xff'"),
]

DUCKDB: list[Case] = [
    ("TINYINT", "-128", pa.int8(), -128),
    ("UBIGINT", "18446744073709551615", pa.string(), "18446744073709551615"),
    ("DECIMAL(38, 18)", "'12345678901234567890.123456789012345678'", pa.decimal128(38, 18),
     Decimal("12345678901234567890.123456789012345678")),
    ("FLOAT", "0.1", pa.float32(), pytest.approx(0.1, rel=1e-7)),
    ("BOOLEAN", "true", pa.bool_(), True),
    ("DATE", "'2026-02-03'", pa.date32(), date(2026, 2, 3)),
    ("TIMESTAMP", "'2026-02-03 04:05:06.789012'", CLOCK, MOMENT),
    ("TIMESTAMPTZ", "'2026-02-03 06:05:06.789012+02'", INSTANT, MOMENT.replace(tzinfo=UTC)),
    ("TIME", "'23:59:59.999999'", pa.string(), "23:59:59.999999"),
    ("BLOB", "unhex('00ff27')", pa.binary(), b"\x00\xff'"),
    ("VARCHAR", "'emoji 😀 ''quoted'' \\ back'", pa.string(), "emoji 😀 'quoted' \\ back"),
    ("ENUM ('small', 'large')", "'large'", pa.string(), "large"),
    ("INTEGER[]", "[1, NULL, 3]", pa.list_(pa.int32()), [1, None, 3]),
]  # fmt: skip


def stream(**words: Any) -> StreamSpec:
    return StreamSpec.model_validate({"id": "shop.orders", "key": ["id"], **words})


def rows(db: Database, spec: StreamSpec, page_size: int = 100, window: Window | None = None) -> list[dict[str, Any]]:
    with SqlConnector({"url": db.url}, {}) as connector:
        found = []
        for slice in connector.slices(spec, window or Window(), 4):  # type: ignore[attr-defined]
            found += [row for page in connector.read(spec, slice, page_size) for row in page.to_pylist()]
    return found


def check(db: Database, cases: list[Case]) -> None:
    """One column a case, and its value beside nothing; then each as a key, in pages of one."""
    declared = ", ".join(f"c{n} {type}" for n, (type, *_) in enumerate(cases))
    db.execute(f"CREATE TABLE orders (id int, {declared})")
    db.execute(f"INSERT INTO orders VALUES (1, {', '.join(value for _, value, *_ in cases)})")
    db.execute(f"INSERT INTO orders VALUES (2{', NULL' * len(cases)})")
    discovered = SqlConnector({"url": db.url}, {}).discover(stream())
    first, second = rows(db, stream(), 1)
    for n, (type, _, arrow, value) in enumerate(cases):
        assert discovered.field(f"c{n}").type == arrow, type
        assert first[f"c{n}"] == value, type
        assert second[f"c{n}"] is None, type


@pytest.mark.service
def test_every_type_of_postgresql_arrives_as_it_is(pg: PostgresServer) -> None:
    check(postgresql_database(pg), POSTGRESQL)


@pytest.mark.service
def test_every_type_of_mariadb_arrives_as_it_is(maria: MariadbServer) -> None:
    check(mariadb_database(maria), MARIADB)


@pytest.mark.fast
def test_every_type_of_sqlite_arrives_as_it_is(tmp_path: Path) -> None:
    check(sqlite_database(tmp_path), SQLITE)


@pytest.mark.fast
def test_every_type_of_duckdb_arrives_as_it_is(tmp_path: Path) -> None:
    check(duckdb_database(tmp_path), DUCKDB)


# --- MariaDB's own -----------------------------------------------------------------------------------------------------


KEYS = [
    ("enum('small', 'large', 'medium')", ["large", "medium", "small"]),  # declared in another order
    ("set('z', 'a')", ["a", "z", "z,a"]),
    ("time(6)", ["-10:00:00.000000", "-09:00:00.000000", "100:00:00.000001"]),
    ("bigint unsigned", [Decimal(1), Decimal(2**63), Decimal(2**64 - 1)]),
    ("bit(1)", [False, True]),
    ("bit(40)", [1, 2**31, 2**39]),
    ("float", [-1.5, 0.25, 1024.5]),
    ("double", [-0.1, 0.1, 1e300]),
    ("decimal(40, 2)", ["-1.50", "2.00", "10.00"]),
    ("date", [date(2025, 12, 31), date(2026, 1, 1)]),
    ("datetime(6)", [MOMENT, MOMENT.replace(microsecond=789013)]),
    ("timestamp(6) NULL", [MOMENT.replace(tzinfo=UTC), MOMENT.replace(microsecond=789013, tzinfo=UTC)]),
    ("uuid", ["00000000-0000-0000-0000-000000000002", "10000000-0000-0000-0000-000000000001"]),
    ("year", [1999, 2026]),
    ("json", ['{"a": 1}', '{"a": 2}']),
    ("char(3) CHARACTER SET latin1", ["a", "ä", "ö"]),
]


@pytest.mark.service
def test_every_type_of_mariadb_can_be_a_key(maria: MariadbServer) -> None:
    db = mariadb_database(maria)
    for n, (type, values) in enumerate(KEYS):
        table = f"t{n}"
        db.execute(f"CREATE TABLE {table} (id {type}, item int)")
        written = [int(value) if isinstance(value, bool) else value for value in values]
        db.put(table, [(value, 0) for value in written[::-1]])
        assert [row["id"] for row in rows(db, stream(source=table), 1)] == values, type


@pytest.mark.service
@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES", "ANSI", "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE"])
def test_a_server_may_take_backslashes_quotes_and_zeros_for_what_it_likes(maria: MariadbServer, mode: str) -> None:
    db, texts = mariadb_database(maria), ["\\", "\\'", "a'b", 'a"b', "a\\"]
    db.create("orders", id="text", at="clock")
    db.put("orders", [(text, MOMENT) for text in texts])
    with maria.connected() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@global.sql_mode")
        ((before,),) = cursor.fetchall()
        cursor.execute("SET GLOBAL sql_mode = %s", (mode,))
        try:
            spec = stream(cursor=["at", "id"], cursor_type=["timestamp", "text"], cursor_zone="UTC")
            window = Window(spec.parse_cursor(["2026-01-01T00:00:00", "\\"]))
            assert [row["id"] for row in rows(db, spec, 1, window)] == sorted(texts)
        finally:
            cursor.execute("SET GLOBAL sql_mode = %s", (before,))


@pytest.mark.service
def test_the_zero_date_is_no_date(maria: MariadbServer) -> None:
    db = mariadb_database(maria)
    db.execute(
        "CREATE TABLE orders (id int, d date NOT NULL, at datetime(6) NOT NULL, ts timestamp NOT NULL DEFAULT 0)",
        "INSERT INTO orders VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00'),"
        " (2, '2026-02-03', '2026-02-03 04:05:06.789012', '2026-02-03 04:05:06')",
    )
    first, second = rows(db, stream())
    assert first == {"id": 1, "d": None, "at": None, "ts": None}
    assert second["at"] == MOMENT
    for cursor in ("d", "at", "ts"):
        spec = stream(cursor=cursor, null_cursor="include", cursor_zone="UTC")
        *_, nulls = SqlConnector({"url": db.url}, {}).slices(spec, Window(), 4)
        assert nulls.nulls
        assert [row["id"] for row in rows(db, spec, 1)] == [2, 1]
        assert [row["id"] for row in rows(db, stream(cursor=cursor, null_cursor="exclude", cursor_zone="UTC"))] == [2]
        assert [row["id"] for row in rows(db, stream(key=[cursor]), 1)] == [2, 1]


@pytest.mark.service
@pytest.mark.parametrize("impossible", ["2026-02-31", "2026-00-15", "2026-01-00"])
def test_a_date_that_does_not_exist_is_named_and_not_made_up(maria: MariadbServer, impossible: str) -> None:
    db = mariadb_database(maria)
    db.create("orders", id="int", d="date", at="clock")
    db.put("orders", [(1, "2026-01-01", impossible), (2, impossible, "2026-01-01")])
    with pytest.raises(SourceError, match="a value does not fit the type") as told:
        rows(db, stream())
    assert impossible not in str(told.value)
    with pytest.raises((SourceError, CursorInvalid)):
        rows(db, stream(cursor="at", cursor_zone="UTC"))


@pytest.mark.service
def test_the_settings_of_a_database_do_not_change_what_is_read(pg: PostgresServer) -> None:
    name = f"latin_{uuid4().hex[:8]}"
    pg.execute(pg.url(), f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    settings = {"timezone": "Asia/Tokyo", "datestyle": "German", "intervalstyle": "iso_8601", "client_encoding": "latin1"}
    pg.execute(pg.url(), *(f"ALTER DATABASE {name} SET {each} = '{value}'" for each, value in settings.items()))
    url = pg.url(name)
    pg.execute(
        url,
        "SET client_encoding = 'UTF8'; CREATE TABLE orders (id text, span interval, at timestamptz[])",
        "SET client_encoding = 'UTF8'; INSERT INTO orders SELECT 'Käthe ' || n, '1 day', '{2026-01-01 00:00:00+00}' "
        "FROM generate_series(1, 3) AS n",
    )
    with SqlConnector({"url": url}, {}) as connector:
        found = [row for page in connector.read(stream(), Slice(0), 1) for row in page.to_pylist()]
    assert [row["id"] for row in found] == ["Käthe 1", "Käthe 2", "Käthe 3"]
    assert {(row["span"], row["at"]) for row in found} == {("1 day", '{"2026-01-01 00:00:00+00"}')}


@pytest.mark.service
@pytest.mark.parametrize("type", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize("endless", ["infinity", "-infinity"])
def test_a_moment_without_end_is_named_and_not_made_up(pg: PostgresServer, type: str, endless: str) -> None:
    db = postgresql_database(pg)
    db.execute(f"CREATE TABLE orders (id int, at {type})", "INSERT INTO orders VALUES (1, '0044-03-15 BC'), (2, now())")
    assert len(pages_of(db)) == 2
    db.execute(f"INSERT INTO orders VALUES (3, '{endless}')")
    with pytest.raises(SourceError, match="has a value that cannot be read") as told:
        pages_of(db)
    assert "infinity" not in str(told.value)


def pages_of(db: Database) -> list[Any]:
    with SqlConnector({"url": db.url}, {}) as connector:
        return [page for slice in connector.slices(stream(), Window(), 1) for page in connector.read(stream(), slice, 1)]


@pytest.mark.service
def test_tables_of_mariadb_are_listed_with_key_and_cursors(maria: MariadbServer) -> None:
    db = mariadb_database(maria)
    db.execute(
        "CREATE TABLE orders (b int, changed timestamp NULL, a int, made datetime, PRIMARY KEY (a, b)) COMMENT 'All orders'",
        "CREATE VIEW recent AS SELECT a, made FROM orders",
    )
    schema = db.url.rpartition("/")[2]
    orders, recent = [each for each in SqlConnector({"url": db.url}, {}).streams() if each.source.startswith(schema)]
    assert (orders.source, orders.key, orders.cursors, orders.comment) == (
        f"{schema}.orders", ("a", "b"), ("changed", "made"), "All orders",
    )  # fmt: skip
    assert (recent.source, recent.key, recent.comment) == (f"{schema}.recent", (), None)


@pytest.mark.service
def test_tables_whose_names_differ_in_case_alone_are_two(maria: MariadbServer) -> None:
    db = mariadb_database(maria)
    db.execute("CREATE TABLE orders (id int)", "CREATE TABLE Orders (id int, item int)")
    connector = SqlConnector({"url": db.url}, {})
    assert connector.discover(stream(source="orders")).names == ["id"]
    assert connector.discover(stream(source="Orders")).names == ["id", "item"]


@pytest.mark.service
def test_long_keys_of_mariadb_are_sorted_by_all_of_their_bytes(maria: MariadbServer) -> None:
    db = mariadb_database(maria)
    db.execute("CREATE TABLE orders (id varchar(3000) CHARACTER SET ascii)")
    keys = ["x" * 2990 + f"{n:03}" for n in range(8)]
    db.put("orders", [(key,) for key in keys[::-1]])
    assert [row["id"] for row in rows(db, stream(), 1)] == keys


@pytest.mark.service
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "latin1_swedish_ci"])
def test_a_unique_text_follows_its_index_and_loses_nothing(maria: MariadbServer, collation: str) -> None:
    db = mariadb_database(maria)
    charset = collation.partition("_")[0]
    db.execute(f"CREATE TABLE orders (id varchar(20) CHARACTER SET {charset} COLLATE {collation} PRIMARY KEY, item int)")
    keys = ["", "B", "a", "c", "Ü", "é", "a\t", "a!", "ab", "'", "\\", "ss!"]
    db.put("orders", [(key, n) for n, key in enumerate(keys)])
    with SqlConnector({"url": db.url}, {}) as connector:
        for size in (1, 5):
            assert sorted(row["id"] for page in connector.keys(stream(), size) for row in page.to_pylist()) == sorted(keys)
    assert sorted(row["id"] for row in rows(db, stream(), 1)) == sorted(keys)
    # As a cursor, it is compared as Python does.
    spec = stream(cursor="id", cursor_type="text")
    window = Window(spec.parse_cursor("a"), spec.parse_cursor("c"))
    assert [row["id"] for row in rows(db, spec, 1, window)] == ["a", "a\t", "a!", "ab"]


@pytest.mark.service
def test_a_part_of_a_primary_key_is_not_unique_by_itself(maria: MariadbServer) -> None:
    db = mariadb_database(maria)
    db.execute("CREATE TABLE orders (id varchar(20), line int, PRIMARY KEY (id, line))")
    given = [("a", 1), ("A", 2), ("a", 3), ("A", 4), ("b", 1)]
    db.put("orders", given)
    spec = stream(key=["id"])
    with SqlConnector({"url": db.url}, {}) as connector:
        listed = [row["id"] for page in connector.keys(spec, 1) for row in page.to_pylist()]
    assert listed == ["A", "A", "a", "a", "b"]
    assert sorted((row["id"], row["line"]) for row in rows(db, spec, 1)) == sorted(given)
