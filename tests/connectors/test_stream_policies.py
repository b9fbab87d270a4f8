"""What a manifest may say of a stream beyond key and cursor, and what a run makes of it."""

import json
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.harness import SparkForTests
from tests.connectors.growing import Dying, Growing
from tests.connectors.harness import Stream
from tidemark.connectors.lateness import NAMES
from tidemark.errors import ConfigError, SchemaRefused, TaskLost, TooManyDeleted


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


def test_a_listing_that_lacks_most_records_deletes_nothing_until_it_is_allowed(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER, item TEXT", deletes="compare")
    table.write("INSERT INTO orders VALUES " + ", ".join(f"({id}, 'pen')" for id in range(1, 31)))
    stream = table.stream
    stream.run()
    table.write("DELETE FROM orders WHERE id > 15")
    stream.run()
    assert len(stream.latest()) == 15, "a half is not most of them"
    table.write("DELETE FROM orders WHERE id > 4")
    with pytest.raises(
        TooManyDeleted, match=r"would delete 11 of 15 \(limit 50 %.*stream run t1/shop/shop.orders --allow-del"
    ):
        stream.run()
    assert len(stream.latest()) == 15
    assert stream.last_run.status == "failed"
    stream.run(allow_deletions=True)
    assert [record["id"] for record in stream.latest()] == [1, 2, 3, 4]
    table.write("DELETE FROM orders WHERE id > 1")
    stream.run()
    assert [record["id"] for record in stream.latest()] == [1], "so few may go whatever their share"


def test_a_source_that_answers_with_nothing_deletes_nothing_however_few_there_were(
    tmp_path: Path, spark: SparkForTests
) -> None:
    words: dict[str, Any] = {"cursor": "at", "deletes": "compare"}
    table = Table(tmp_path, spark, "id INTEGER, at DATETIME", **words)
    table.write("INSERT INTO orders VALUES (1, '2026-01-01T10:00:00Z'), (2, '2026-01-01T10:00:00Z')")
    stream = table.stream
    stream.run()
    table.write("DELETE FROM orders")
    with pytest.raises(TooManyDeleted, match=r"listed 0 records.*would delete 2 of 2.* --full --allow-deletions"):
        stream.run(full=True)
    stream.run()
    assert len(stream.latest()) == 2, "runs that compare nothing go on"
    stream.describe("sql", {"url": f"sqlite:///{table.path}"}, source="orders", key=["id"], max_deleted_percent=100, **words)
    stream.run(full=True)
    assert stream.latest() == []


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
    assert (table.stream.last_run.mode, table.stream.last_run.reason) == ("full", "cursor ran backwards")
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


# --- again and again -------------------------------------------------------------------------------------------------


def test_lists_and_structs_stay_in_their_columns_from_run_to_run(tmp_path: Path, spark: SparkForTests) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    stream = Stream.make(tmp_path / "lake", spark, "files", {"path": str(folder)}, key=["id"])
    (folder / "1.jsonl").write_text('{"id": 1, "tags": ["a"], "at": {"city": "Ulm"}}\n')
    stream.run()
    (folder / "2.jsonl").write_text('{"id": 2, "tags": ["b", "c"], "at": {"zip": "89073"}}\n')
    stream.run()
    assert [{name: record[name] for name in record if not name.startswith("_")} for record in stream.latest()] == [
        {"id": 1, "tags": ["a"], "at": {"city": "Ulm", "zip": None}},
        {"id": 2, "tags": ["b", "c"], "at": {"city": None, "zip": "89073"}},
    ]


def test_a_value_that_flips_back_within_one_tick_is_seen(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER, state TEXT, at DATETIME", cursor="at", safety_window="PT1H")
    table.write("INSERT INTO orders VALUES (1, 'open', '2026-01-01T10:00:00Z')")
    for state in ("open", "closed", "open", "open"):
        table.write(f"UPDATE orders SET state = '{state}'")
        table.stream.run()
    assert [record["state"] for record in table.stream.changes()] == ["open", "closed", "open"]
    assert [record["state"] for record in table.stream.latest()] == ["open"]


def test_a_state_that_was_taken_away_comes_back_though_nothing_new_lands(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER, at DATETIME", cursor="at")
    table.write("INSERT INTO orders VALUES (1, '2026-01-01T10:00:00Z'), (2, '2026-01-02T10:00:00Z')")
    stream = table.stream
    stream.run()
    reached = stream.state
    stream.subject.marks.rewind(stream.subject.address, to_value="2026-01-01T00:00:00Z", actor="a", reason="r")
    stream.run()
    assert stream.state == reached
    stream.subject.marks.reset(stream.subject.address, actor="a", reason="r")
    stream.run()
    assert (stream.state, stream.last_run.detail["rows"]["landed"]) == (reached, 0)


def test_a_plan_of_another_source_is_not_resumed(tmp_path: Path, spark: SparkForTests) -> None:
    for name, first in (("wrong", 100), ("right", 0)):
        (tmp_path / f"{name}.json").write_text(json.dumps([{"id": first + number} for number in range(4)]))
    doomed = tmp_path / "doomed"
    doomed.write_text("3")
    wrong = {"path": str(tmp_path / "wrong.json"), "doomed": str(doomed)}
    stream = Stream.make(tmp_path / "lake", spark, Dying.kind, wrong, key=["id"])
    with pytest.raises(TaskLost):
        stream.run()
    stream.describe(Dying.kind, wrong | {"path": str(tmp_path / "right.json")}, key=["id"])
    stream.run()
    assert [record["id"] for record in stream.latest()] == [0, 1, 2, 3]


def test_upkeep_leaves_the_same_rows_in_fewer_files_whatever_a_dead_run_left(tmp_path: Path, spark: SparkForTests) -> None:
    table = Table(tmp_path, spark, "id INTEGER, at DATETIME", cursor="at")
    stream = table.stream
    for number in range(4):
        table.write(f"INSERT INTO orders VALUES ({number}, '2026-01-01T10:00:0{number}Z')")
        stream.run()
    before = stream.changes()
    done = stream.maintain(keep_runs=1)
    bronze = done[stream.subject.place.table]
    assert (bronze["files rewritten"], bronze["files written"]) == (4, 1)
    assert bronze["snapshots removed"] >= 3
    assert stream.changes() == before
    table.write("INSERT INTO orders VALUES (9, '2026-01-01T10:00:09Z')")
    stream.run()
    assert stream.changes() == [*before, {"id": 9, "at": "2026-01-01T10:00:09Z"}]
    # A plan that no run can read is no reason to wait: test_stream_left has the plan that a run goes on from.
    stream.platform.store.put(f"{stream.subject.place.root}/runs/r/plan.sealed", b"not a plan")
    again = stream.maintain()[stream.subject.place.table]
    assert (again["files rewritten"], again["files written"]) == (2, 1)
    assert stream.changes() == [*before, {"id": 9, "at": "2026-01-01T10:00:09Z"}]
