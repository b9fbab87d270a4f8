"""Tables of real databases landed in Bronze: what changed, once, and nothing lost."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from tests.catalog.harness import SparkForTests
from tests.connectors.harness import Stream
from tests.services.postgres import PostgresServer
from tidemark.errors import ConfigError, CursorInvalid, SchemaRefused, SourceError

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, amount {money}, updated_at {time})"


class Orders:
    """A table of orders, in whichever database."""

    def __init__(self, url: str, execute: Callable[[str], None], rows: Callable[[], list[dict[str, Any]]]) -> None:
        self.url, self.execute, self.rows = url, execute, rows

    def put(self, id: int, item: str, at: str) -> None:
        self.execute(f"DELETE FROM orders WHERE id = {id}")
        self.execute(f"INSERT INTO orders VALUES ({id}, '{item}', {id}.25, '{at}')")


@pytest.fixture(params=["postgresql", "sqlite", "duckdb"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Orders:
    if request.param == "postgresql":
        url = request.getfixturevalue("pg").new_database()

        def execute(sql: str) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(sql.encode())

        def rows() -> list[dict[str, Any]]:
            with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
                return connection.execute("SELECT * FROM orders ORDER BY id").fetchall()

        made = Orders(url, execute, rows)
        execute(ORDERS.format(money="numeric(12, 3)", time="timestamptz"))
    elif request.param == "sqlite":
        path = tmp_path / "shop.db"

        def execute(sql: str) -> None:
            with sqlite3.connect(path) as connection:
                connection.execute(sql)
            connection.close()

        def rows() -> list[dict[str, Any]]:
            connection = sqlite3.connect(path)
            connection.row_factory = sqlite3.Row
            found = [dict(row) for row in connection.execute("SELECT * FROM orders ORDER BY id")]
            connection.close()
            return found

        made = Orders(f"sqlite:///{path}", execute, rows)
        execute(ORDERS.format(money="REAL", time="DATETIME"))
    else:
        path = tmp_path / "shop.duckdb"

        def execute(sql: str) -> None:
            with duckdb.connect(str(path)) as db:
                db.execute(sql)

        def rows() -> list[dict[str, Any]]:
            with duckdb.connect(str(path)) as db:
                return db.sql("SELECT * FROM orders ORDER BY id").to_arrow_table().to_pylist()

        made = Orders(f"duckdb:///{path}", execute, rows)
        execute(ORDERS.format(money="DECIMAL(12, 3)", time="TIMESTAMPTZ"))
    return made


def stream_of(orders: Orders, folder: Path, spark: SparkForTests, **words: Any) -> Stream:
    described = {"source": "orders", "key": ["id"], "cursor": "updated_at", **words}
    return Stream.make(folder / "lake", spark, "sql", {"url": orders.url}, **described)


def test_a_full_cycle_an_incremental_cycle_and_a_retry_land_every_version_once(
    orders: Orders, tmp_path: Path, spark: SparkForTests
) -> None:
    stream = stream_of(orders, tmp_path, spark)
    orders.put(1, "pen", "2026-01-01T10:00:00.250Z")
    orders.put(2, "ink", "2026-01-01T11:00:00.500Z")
    first = stream.run()
    assert first is not None
    assert (first.stream_id, first.cursor_field, first.records_emitted) == ("shop.orders", "updated_at", 2)
    assert stream.latest() == orders.rows()
    assert stream.last_run.mode == "full"

    orders.put(1, "pencil", "2026-01-02T10:00:00.750Z")
    orders.put(3, "cap", "2026-01-01T11:00:00.500Z")  # as late as the last one: `>` would never see it
    second = stream.run()
    assert second is not None
    assert second.records_emitted == 2
    assert stream.latest() == orders.rows()
    assert [record["item"] for record in stream.changes()] == ["pen", "ink", "cap", "pencil"]
    assert stream.last_run.mode == "incremental"

    before = stream.snapshot()
    again = stream.run()
    assert again is not None
    assert again.records_emitted == 0
    assert (stream.snapshot(), stream.last_run.status) == (before, "unchanged")
    stream.run(full=True)
    assert len(stream.changes()) == 4


def test_records_beyond_the_window_wait_and_records_before_the_state_are_not_read_again(
    orders: Orders, tmp_path: Path, spark: SparkForTests
) -> None:
    stream = stream_of(orders, tmp_path, spark, safety_window="PT1H")
    orders.put(1, "pen", "2026-01-01T10:00:00Z")
    orders.put(2, "from the future", "2099-01-01T00:00:00Z")
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1]
    orders.put(3, "late, within the safety window", "2026-01-01T09:30:00Z")
    orders.put(4, "late, beyond it", "2026-01-01T08:59:59Z")
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1, 3]
    assert stream.last_run.detail["rows"]["read"] == 2


def test_more_equal_cursors_than_a_page_holds_are_all_read(orders: Orders, tmp_path: Path, spark: SparkForTests) -> None:
    stream = stream_of(orders, tmp_path, spark, page_size=3)
    for id in range(1, 12):
        orders.put(id, f"item {id}", "2026-01-01T10:00:00Z")
    stream.run()
    assert stream.latest() == orders.rows()


def test_a_new_field_is_never_lost_and_a_changed_type_gets_a_column_of_its_own(
    tmp_path: Path, pg: PostgresServer, spark: SparkForTests
) -> None:
    url = pg.new_database()
    pg.execute(url, "CREATE TABLE orders (id int PRIMARY KEY, size int, updated_at timestamptz)")
    pg.execute(url, "INSERT INTO orders VALUES (1, 10, '2026-01-01T10:00:00Z'), (3, 30, '2026-01-01T12:00:00Z')")
    words: dict[str, Any] = {"source": "orders", "key": ["id"], "cursor": "updated_at"}
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": url}, **words)
    stream.run()
    pg.execute(
        url,
        "ALTER TABLE orders ADD COLUMN colour text",
        "ALTER TABLE orders ALTER COLUMN size TYPE text",
        "INSERT INTO orders VALUES (2, 'large', '2026-01-02T10:00:00Z', 'red')",
    )
    stream.run()
    assert [(row["id"], row["size"], row["colour"], row["size__string"]) for row in stream.latest()] == [
        (1, 10, None, None), (2, None, "red", "large"), (3, None, None, "30"),
    ]  # fmt: skip
    assert [record["size"] for record in stream.changes()] == [10, 30, None, None]
    stream.describe("sql", {"url": url}, **words, on_type_change="reject")
    pg.execute(url, "ALTER TABLE orders ALTER COLUMN colour TYPE int USING 7")
    before, state = stream.snapshot(), stream.state
    with pytest.raises(SchemaRefused, match="'colour' changed its type"):
        stream.run()
    assert (stream.snapshot(), stream.state) == (before, state)


def test_records_without_a_cursor_or_a_key_are_told_and_never_poison_the_state(
    tmp_path: Path, pg: PostgresServer, spark: SparkForTests
) -> None:
    url = pg.new_database()
    pg.execute(url, "CREATE TABLE orders (id int, item text, updated_at timestamptz)")
    pg.execute(url, "INSERT INTO orders VALUES (1, 'pen', '2026-01-01T10:00:00Z'), (2, 'ink', NULL)")
    words: dict[str, Any] = {"source": "orders", "key": ["id"], "cursor": "updated_at"}
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": url}, **words)
    with pytest.raises(CursorInvalid, match="1 records have no value in the cursor 'updated_at'"):
        stream.run()
    assert (stream.state, stream.snapshot()) == (None, None)
    pg.execute(url, "UPDATE orders SET updated_at = '2026-01-01T09:00:00Z' WHERE id = 2")  # as the error advises
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1, 2]
    stream.describe("sql", {"url": url}, **words, null_cursor="include")
    pg.execute(url, "INSERT INTO orders VALUES (4, 'cap', NULL)")
    pg.execute(url, "INSERT INTO orders VALUES (NULL, 'nobody', '2026-01-01T11:00:00Z')")
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1, 2, 4]
    assert [row["reason"] for row in stream.quarantine()] == ["a part of the key is missing"]
    assert "nobody" in stream.quarantine()[0]["record"]


def test_a_wrong_field_or_table_is_named(tmp_path: Path, pg: PostgresServer, spark: SparkForTests) -> None:
    url = pg.new_database()
    pg.execute(url, "CREATE TABLE orders (id int, item text, updated_at timestamptz)")
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": url}, source="orders", key=["id"], cursor="changed_at")
    with pytest.raises(SourceError, match=r"'orders' has no field 'changed_at'\. It has: id, item, updated_at"):
        stream.run()
    stream.describe("sql", {"url": url}, source="order", key=["id"], cursor="updated_at")
    with pytest.raises(SourceError, match="no table or view 'order'"):
        stream.run()
    assert stream.last_run.status == "failed"


def test_columns_that_travel_as_text_are_still_ordered_by_what_they_mean(
    tmp_path: Path, pg: PostgresServer, spark: SparkForTests
) -> None:
    url = pg.new_database()
    pg.execute(url, "CREATE TABLE orders AS SELECT g::numeric AS id, '{1,2}'::int[] AS sizes FROM generate_series(1, 120) g")
    stream = Stream.make(
        tmp_path / "lake", spark, "sql", {"url": url}, source="orders", key=["id"], cursor="id", cursor_type="decimal",
        page_size=10,
    )  # fmt: skip
    stream.run()
    assert sorted(int(record["id"]) for record in stream.latest()) == list(range(1, 121))
    assert {record["sizes"] for record in stream.latest()} == {"{1,2}"}
    assert stream.state == "120"


def test_a_key_of_bytes_is_paged_without_loss(tmp_path: Path, spark: SparkForTests) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE orders AS SELECT unhex(md5(i::VARCHAR)) AS id, i::UBIGINT AS n FROM range(59) AS t (i)")
    words: dict[str, Any] = {"source": "orders", "key": ["id"], "page_size": 10}
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": f"duckdb:///{path}"}, **words)
    stream.run()
    assert sorted(int(record["n"]) for record in stream.latest()) == list(range(59))


def test_records_that_share_cursor_and_key_over_a_page_boundary_are_all_read(tmp_path: Path, spark: SparkForTests) -> None:
    path = tmp_path / "shop.db"
    rows = [(1, "a"), (2, "b"), (2, "c"), (3, "d")]
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, item TEXT, at DATETIME)")
        connection.executemany("INSERT INTO orders VALUES (?, ?, '2026-01-01T10:00:00Z')", rows)
    connection.close()
    words: dict[str, Any] = {"source": "orders", "key": ["id"], "cursor": "at", "page_size": 2}
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": f"sqlite:///{path}"}, **words)
    stream.run()
    assert sorted(record["item"] for record in stream.changes()) == ["a", "b", "c", "d"]


def test_a_flag_of_0_is_no_deletion_and_a_flag_of_1_is_one(tmp_path: Path, spark: SparkForTests) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, gone INTEGER, at DATETIME)")
        connection.execute("INSERT INTO orders VALUES (1, 0, '2026-01-01T10:00:00Z'), (2, 1, '2026-01-01T10:00:00Z')")
    connection.close()
    words: dict[str, Any] = {"source": "orders", "key": ["id"], "cursor": "at", "deletes": "flag", "delete_flag": "gone"}
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": f"sqlite:///{path}"}, **words)
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1]
    assert len(stream.changes()) == 2


def test_a_stream_without_a_cursor_lands_a_record_that_becomes_again_what_it_was(
    tmp_path: Path, pg: PostgresServer, spark: SparkForTests
) -> None:
    url = pg.new_database()
    pg.execute(url, "CREATE TABLE orders (id int, item text)", "INSERT INTO orders VALUES (1, 'pen')")
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": url}, source="orders", key=["id"])
    for item in ("pen", "ink", "pen", "pen"):
        pg.execute(url, f"UPDATE orders SET item = '{item}'")
        stream.run()
    assert [record["item"] for record in stream.changes()] == ["pen", "ink", "pen"]
    assert [record["item"] for record in stream.latest()] == ["pen"]


def test_what_cannot_be_obeyed_is_refused_by_name(orders: Orders, tmp_path: Path, spark: SparkForTests) -> None:
    orders.put(1, "pen", "2026-01-01T10:00:00Z")
    stream = stream_of(orders, tmp_path, spark)
    stream.run()
    words: dict[str, Any] = {"source": "orders", "key": ["id"]}
    stream.describe("sql", {"url": orders.url}, **words, cursor="id", cursor_type="integer")
    with pytest.raises(CursorInvalid, match="its state is of the cursor 'updated_at'"):
        stream.run()
    if orders.url.startswith("sqlite"):
        stream.describe("sql", {"url": orders.url}, **words, cursor="updated_at", cursor_zone="Europe/Berlin")
        with pytest.raises(ConfigError, match="SQLite knows no time zones"):
            stream.run()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_times_without_a_zone_are_refused_before_anything_is_published_until_the_manifest_says_whose_they_are(
    tmp_path: Path, spark: SparkForTests, kind: str
) -> None:
    path = tmp_path / f"shop.{kind}"
    create, put = (
        "CREATE TABLE orders (id INTEGER, changed TIMESTAMP)",
        "INSERT INTO orders VALUES (1, '2026-01-01 10:00:00')",
    )
    if kind == "sqlite":
        with sqlite3.connect(path) as connection:
            connection.execute(create)
            connection.execute(put)
        connection.close()
    else:
        with duckdb.connect(str(path)) as db:
            db.execute(create)
            db.execute(put)
    settings, words = {"url": f"{kind}:///{path}"}, {"source": "orders", "key": ["id"], "cursor": "changed"}
    stream = Stream.make(tmp_path / "lake", spark, "sql", settings, **words)
    with pytest.raises(CursorInvalid, match="has neither an offset nor a declared zone"):
        stream.run()
    assert stream.snapshot() is None
    stream.describe("sql", settings, cursor_zone="UTC", **words)
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1]
