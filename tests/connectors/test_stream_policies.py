"""What a manifest may say of a stream beyond key and cursor, and what a run makes of it."""

import json
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.harness import SparkForTests
from tests.connectors.growing import Growing
from tests.connectors.harness import Stream
from tidemark.connectors.lateness import NAMES
from tidemark.errors import ConfigError, SchemaRefused


class Table:
    """A table `orders` in SQLite, and a stream of it."""

    def __init__(self, folder: Path, spark: SparkForTests, columns: str, **words: Any) -> None:
        self.path = folder / "shop.db"
        self.write(f"CREATE TABLE orders ({columns})")
        self.stream = Stream.make(
            folder / "lake", spark, "sql", {"url": f"sqlite:///{self.path}"}, source="orders", key=["id"], **words
        )

    def write(self, *statements: str) -> None:
        with sqlite3.connect(self.path) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()


def operations(stream: Stream) -> list[tuple[str, int]]:
    rows = stream.platform.spark.table(f"lake.{stream.subject.place.changes}").orderBy("emitted_at", "arrival").toArrow()
    return [(row["operation"], row["key"]["id"]) for row in rows.to_pylist()]


# --- deletions -------------------------------------------------------------------------------------------------------


def test_a_full_run_finds_what_is_gone_and_what_is_there_again_as_it_was(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER, at DATETIME", cursor="at", deletes="compare")
    first, second = "(1, '2026-01-01T10:00:00Z')", "(2, '2026-01-01T10:00:00Z')"
    table.write(f"INSERT INTO orders VALUES {first}, {second}")
    stream = table.stream
    stream.run()
    table.write("DELETE FROM orders WHERE id = 2")
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1, 2]  # an incremental run lists nothing completely
    stream.run(full=True)
    assert [record["id"] for record in stream.latest()] == [1]
    assert operations(stream) == [("upsert", 1), ("upsert", 2), ("delete", 2)]

    table.write(f"INSERT INTO orders VALUES {second}")
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1, 2]
    table.write("DELETE FROM orders WHERE id = 2")
    stream.run(full=True)
    assert [record["id"] for record in stream.latest()] == [1]
    assert operations(stream)[3:] == [("upsert", 2), ("delete", 2)]
    stream.run(full=True)
    assert len(operations(stream)) == 5


def test_a_stream_without_a_cursor_finds_what_is_gone_on_every_run(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER, item TEXT", deletes="compare")
    table.write("INSERT INTO orders VALUES (1, 'pen'), (2, 'ink')")
    table.stream.run()
    table.write("DELETE FROM orders WHERE id = 1")
    table.stream.run()
    assert table.stream.latest() == [{"id": 2, "item": "ink"}]


def test_a_way_to_find_deletions_that_the_kind_does_not_have_is_refused(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER", deletes="log")
    with pytest.raises(ConfigError, match=r"cannot find deletions by `log`. It can: none, compare, flag"):
        table.stream.run()
    (tmp_path / "files").mkdir()
    stream = Stream.make(tmp_path / "f", spark, "files", {"path": str(tmp_path / "files")}, key=["id"], deletes="compare")
    with pytest.raises(ConfigError, match=r"cannot find deletions by `compare`. It can: none, flag"):
        stream.run()


# --- fields ----------------------------------------------------------------------------------------------------------


def test_fixed_fields_land_in_their_types_and_what_does_not_fit_is_put_aside(tmp_path: Path, spark: SparkForTests) -> None:
    words = {"schema_strategy": "fixed", "schema": {"id": "bigint", "amount": "decimal(9,2)"}}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,amount,note\n1,1.50,x\n2,many,y\n3,,z\n")
    stream = Stream.make(tmp_path / "lake", spark, "files", {"path": str(tmp_path / "in")}, key=["id"], **words)
    stream.run()
    landed = stream.latest()
    assert [(row["id"], str(row["amount"]), sorted(row)) for row in landed] == [
        (1, "1.50", ["_file_checkpoint", "amount", "id"]),
        (3, "None", ["_file_checkpoint", "amount", "id"]),
    ]
    [aside] = stream.quarantine()
    assert aside["reason"] == "a value does not fit the manifest's schema"
    assert json.loads(aside["record"])["amount"] == "many"


def test_fields_that_nobody_described_land_with_evolve_and_are_refused_without(tmp_path: Path, spark: SparkForTests) -> None:
    path = tmp_path / "records.json"
    path.write_text(json.dumps([{"id": 1}, {"id": 2, "name": "pen"}, {"id": 3, "price": 1.5}, {"id": 4, "price": 2}]))
    settings = {"path": str(path)}
    stream = Stream.make(tmp_path / "lake", spark, Growing.kind, settings, key=["id"])
    with pytest.raises(SchemaRefused, match=r"fields that the source does not describe: (name|price)\..*evolve"):
        stream.run()
    assert stream.snapshot() is None
    stream.describe(Growing.kind, settings, key=["id"], schema_strategy="evolve")
    stream.run()
    assert [{k: v for k, v in record.items() if v is not None} for record in stream.latest()] == [
        {"id": 1},
        {"id": 2, "name": "pen"},
        {"id": 3, "price": 1.5},
        {"id": 4, "price": 2.0},
    ]


# --- time ------------------------------------------------------------------------------------------------------------


def test_records_that_come_late_are_counted_by_how_late_they_are(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER, at DATETIME", cursor="at", safety_window="P2D")
    table.write("INSERT INTO orders VALUES (1, '2026-01-03T10:00:00Z')")
    table.stream.run()
    assert table.stream.last_run.detail["late"] == [0] * len(NAMES)
    table.write(
        "INSERT INTO orders VALUES (2, '2026-01-03T09:59:30Z'), (3, '2026-01-03T09:59:20Z'), (4, '2026-01-02T10:00:00Z')",
        "INSERT INTO orders VALUES (5, '2026-01-03T10:00:00Z'), (6, '2026-01-04T10:00:00Z')",
    )
    table.stream.run()
    late = {name: count for name, count in zip(NAMES, table.stream.last_run.detail["late"], strict=True) if count}
    assert late == {"1 min": 2, "1 day": 1}


def test_a_source_that_went_back_is_read_in_full_if_the_manifest_allows_it(tmp_path: Path, spark: SparkForTests) -> None:
    words: dict[str, Any] = {"cursor": "id", "cursor_type": "integer", "full_refresh_fallback": True}
    table = Table(tmp_path, spark, "id INTEGER", **words)
    table.write("INSERT INTO orders VALUES (7), (9)")
    table.stream.run()
    table.write("DELETE FROM orders WHERE id = 9")
    table.stream.run()
    assert (table.stream.last_run.mode, table.stream.last_run.reason) == ("full", "cursor backwards")
    assert table.stream.state == "7"


def test_latest_is_right_though_the_clock_of_the_platform_was_set_back(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER, item TEXT")
    table.write("INSERT INTO orders VALUES (1, 'pen')")
    table.stream.run()
    [before] = emitted(table.stream)
    table.write("UPDATE orders SET item = 'ink'")

    class Behind:
        def now(self) -> datetime:
            return before - timedelta(days=1)

    object.__setattr__(table.stream.platform, "clock", Behind())
    table.stream.run()
    assert table.stream.latest() == [{"id": 1, "item": "ink"}]
    assert emitted(table.stream) == [before, before + timedelta(microseconds=1)]


def emitted(stream: Stream) -> list[datetime]:
    rows = stream.platform.spark.table(f"lake.{stream.subject.place.changes}").orderBy("emitted_at").toArrow()
    return [moment.astimezone(UTC) for moment in rows["emitted_at"].to_pylist()]


def test_a_rate_limit_holds_over_all_slices_of_a_run(tmp_path: Path, spark: SparkForTests) -> None:
    path = tmp_path / "records.json"
    path.write_text(json.dumps([{"id": number} for number in range(8)]))
    stream = Stream.make(tmp_path / "lake", spark, Growing.kind, {"path": str(path)}, key=["id"])
    manifest = tmp_path / "lake" / "shop.yaml"
    manifest.write_text(manifest.read_text() + "rate_limit: 4\n")
    started = time.monotonic()
    stream.run()
    assert time.monotonic() - started >= 7 / 4
    assert len(stream.latest()) == 8
