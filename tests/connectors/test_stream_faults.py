"""Streams on bad days: kill -9 at every step boundary, slices that fail, two runs at once, a source that went back."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

from spark_code.connectors.run import IngestRun
from tests.catalog.harness import SparkForTests
from tests.connectors.growing import Dying
from tests.connectors.harness import Stream
from tests.connectors.kills import SCENARIOS, StreamVictim, changed
from tests.runs.kills import Kills, parts_of, taken_back_by_hand
from tests.runs.places import Folder
from tests.runs.zombies import wake_after_takeover
from tests.services.postgres import PostgresServer
from tidemark.errors import CursorBackwards, LostRace, MarkMoved, RunInProgress, SliceFailed, StateSealBroken, TaskLost
from tidemark.lake_sweep import without_checksum

pytestmark = pytest.mark.fault

# Of the points at which a run is killed, so that no test takes minutes.
PARTS = 4

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, updated_at DATETIME)"


def write(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def changed_stream(folder: Path, spark: SparkForTests) -> Stream:
    """A stream with a state, and a source that has changed since."""
    folder.mkdir(parents=True)
    path = folder / "shop.db"
    write(path, ORDERS, "INSERT INTO orders VALUES (1, 'pen', '2026-01-01T10:00:00Z'), (2, 'ink', '2026-01-01T11:00:00Z')")
    stream = Stream.make(
        folder, spark, "sql", {"url": f"sqlite:///{path}"}, source="orders", key=["id"], cursor="updated_at"
    )
    stream.run()
    write(
        path,
        "UPDATE orders SET item = 'pencil', updated_at = '2026-01-02T10:00:00Z' WHERE id = 1",
        "INSERT INTO orders VALUES (3, 'cap', '2026-01-02T11:00:00Z')",
    )
    return stream


def told(stream: Stream) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str | None]:
    return stream.changes(), stream.latest(), stream.state


@pytest.fixture(scope="module", params=SCENARIOS.values(), ids=SCENARIOS)
def kills(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests
) -> Kills[StreamVictim]:
    folder = tmp_path_factory.mktemp("kills")
    victim, place = StreamVictim.make(folder / "here", spark), Folder(folder / "here")
    return Kills(victim, request.param, place, folder / "trace", parts=PARTS)


@pytest.mark.parametrize("part", parts_of(PARTS))
def test_whatever_is_killed_at_any_point_is_put_right_by_the_next_run(kills: Kills[StreamVictim], part: int | None) -> None:
    kills.part(part)


@pytest.mark.parametrize("point", ["run.after_lease", "lake.before_publish", "control.before_mark_move"])
def test_a_run_that_was_stopped_and_woken_changes_nothing(tmp_path: Path, spark: SparkForTests, point: str) -> None:
    victim = StreamVictim.make(tmp_path / "here", spark)
    changed(victim)
    wake_after_takeover(victim, StreamVictim.run, point, StreamVictim.run, Folder(tmp_path / "here"), tmp_path / "gate")


def test_a_landing_that_was_taken_back_by_hand_after_the_kill_is_not_finished(tmp_path: Path, spark: SparkForTests) -> None:
    taken_back_by_hand(StreamVictim.make(tmp_path / "here", spark), SCENARIOS["incremental run"])


def strays(stream: Stream) -> list[str]:
    """What no published snapshot accounts for."""
    place, reader = stream.subject.place, stream.platform.lake.reader
    left = [info.key for info in stream.platform.store.list(f"{place.root}/")]
    for table in (place.table, place.quarantine):
        known = reader.referenced(table)
        folder = Path(reader.settings.warehouse) / table.replace(".", "/")
        left += [str(path) for path in folder.rglob("*") if path.is_file() and without_checksum(str(path)) not in known]
        left += reader.branches(table)
    return left


def test_slices_that_were_finished_are_kept_and_only_the_others_are_read_again(
    tmp_path: Path, pg: PostgresServer, spark: SparkForTests
) -> None:
    url = pg.new_database()
    view = "CREATE OR REPLACE VIEW orders AS SELECT id, 1000000 / ({divisor}) AS share, id AS position FROM numbers"
    pg.execute(url, "CREATE TABLE numbers AS SELECT generate_series(1, 25000) AS id", view.format(divisor="id - 24000"))
    stream = Stream.make(
        tmp_path / "lake", spark, "sql", {"url": url}, source="orders", key=["id"], cursor="position", cursor_type="integer"
    )
    with pytest.raises(
        SliceFailed, match=r"slice 1 could not be read in 4 attempts: .* refused the query.* finished are kept"
    ):
        stream.run()
    assert (stream.state, stream.snapshot()) == (None, None)
    kept = [info.key for info in stream.platform.store.list(stream.subject.place.root) if "/slices/" in info.key]
    assert kept
    pg.execute(url, view.format(divisor="id - 24000 + 50000"))
    stream.run()
    assert stream.last_run.reason == "resumed"
    assert (stream.last_run.detail["rows"]["read"], stream.last_run.detail["rows"]["landed"]) == (25000, 25000)
    assert [record["id"] for record in stream.latest()] == list(range(1, 25001))
    read_first = [record for record in stream.changes() if record["share"] < 0]
    assert len(read_first) >= 10_000  # still as they were when the first run read them
    assert strays(stream) == []


def test_a_task_that_is_killed_is_named_and_only_its_slice_is_read_again(tmp_path: Path, spark: SparkForTests) -> None:
    path = tmp_path / "records.json"
    path.write_text(json.dumps([{"id": number} for number in range(6)]))
    doomed = tmp_path / "doomed"
    doomed.write_text("4")
    stream = Stream.make(tmp_path / "lake", spark, Dying.kind, {"path": str(path), "doomed": str(doomed)}, key=["id"])
    with pytest.raises(TaskLost, match="ended from outside"):
        stream.run()
    assert stream.snapshot() is None
    kept = [info.key for info in stream.platform.store.list(stream.subject.place.root) if "/slices/" in info.key]
    stream.run()
    assert stream.last_run.reason == ("resumed" if kept else "no state")
    assert [record["id"] for record in stream.latest()] == list(range(6))
    assert strays(stream) == []


def test_of_two_runs_of_one_stream_one_is_told_and_changes_nothing(tmp_path: Path, spark: SparkForTests) -> None:
    stream = changed_stream(tmp_path / "here", spark)
    first = IngestRun(stream.subject, str(uuid4()))
    first.begin()
    try:
        with pytest.raises(RunInProgress):
            IngestRun(stream.subject, str(uuid4())).begin()
    finally:
        first.end()
    stream.run()
    assert [record["item"] for record in stream.latest()] == ["pencil", "ink", "cap"]


def test_of_two_runs_at_once_one_wins_each_of_twenty_times_and_nothing_is_lost(tmp_path: Path, spark: SparkForTests) -> None:
    path = tmp_path / "shop.db"
    write(path, ORDERS)
    stream = Stream.make(
        tmp_path / "lake", spark, "sql", {"url": f"sqlite:///{path}"}, source="orders", key=["id"], cursor="updated_at"
    )
    for number in range(20):
        write(path, f"INSERT INTO orders VALUES ({number}, 'pen', '2026-01-01T10:00:{number:02}Z')")
        together = Barrier(2)

        def run(together: Barrier = together) -> str:
            together.wait()
            try:
                stream.run()
            except (RunInProgress, LostRace, MarkMoved) as error:
                return type(error).__name__
            return "ran"

        with ThreadPoolExecutor(2) as both:
            ended = [each.result() for each in [both.submit(run), both.submit(run)]]
        assert "ran" in ended, number
        assert [record["id"] for record in stream.changes()] == list(range(number + 1)), (number, ended)
    assert strays(stream) == []


def test_a_source_that_went_back_is_named_and_nothing_is_read(tmp_path: Path, spark: SparkForTests) -> None:
    path = tmp_path / "shop.db"
    write(
        path, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)", "INSERT INTO orders VALUES (7, 'pen'), (9, 'ink')"
    )
    stream = Stream.make(
        tmp_path / "lake", spark, "sql", {"url": f"sqlite:///{path}"}, source="orders", key=["id"], cursor="id",
        cursor_type="integer",
    )  # fmt: skip
    stream.run()
    write(path, "DELETE FROM orders WHERE id = 9")
    before = told(stream)
    with pytest.raises(CursorBackwards, match="restored, or its clock set back"):
        stream.run()
    assert told(stream) == before
    stream.run(full=True)
    assert stream.state == "7"  # back with its source: ahead of it, number 8 would never be read
    write(path, "INSERT INTO orders VALUES (8, 'cap')", "INSERT INTO orders VALUES (9, 'ink')")
    stream.run()
    assert [record["id"] for record in stream.latest()] == [7, 8, 9]


def test_a_state_sealed_with_another_key_stops_the_run_before_it_reads(
    tmp_path: Path, spark: SparkForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = changed_stream(tmp_path / "here", spark)
    key_id = (stream.folder / "store" / "state.key").read_text().partition(":")[0]
    monkeypatch.setenv("TIDEMARK_STATE_KEYS", f"{key_id}:{'A' * 43}=")
    before = stream.snapshot()
    with pytest.raises(StateSealBroken):
        stream.run()
    monkeypatch.delenv("TIDEMARK_STATE_KEYS")
    assert stream.snapshot() == before
    stream.run()
    assert len(stream.changes()) == 4
