"""Counts, control databases that are down, schemas that change half-way, smaller pages: the edges of a run of a stream."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest

from spark_code.connectors import engine, slices
from spark_code.connectors.run import IngestRun
from spark_code.connectors.slices import SMALLEST_PAGE
from tests.catalog.harness import SparkForTests
from tests.connectors.harness import Stream
from tidemark.connectors.contract import Slice
from tidemark.connectors.kinds.sql import SqlConnector
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ChecksFailed, ControlError, SchemaRefused, SliceFailed, SourceError
from tidemark.publication import publish_branch
from tidemark.runs.events import Advanced, Event, StepEnded, listening


@pytest.fixture
def stream(tmp_path: Path, spark: SparkForTests) -> Stream:
    """Three orders in SQLite, none of them read."""
    path = tmp_path / "shop.db"
    write(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, at DATETIME)")
    write(path, *(f"INSERT INTO orders VALUES ({n}, 'pen', '2026-01-01T10:00:0{n}Z')" for n in range(3)))
    return Stream.make(tmp_path / "lake", spark, "sql", {"url": f"sqlite:///{path}"}, **WORDS)


WORDS: dict[str, Any] = {"source": "orders", "key": ["id"], "cursor": "at"}


def write(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_records_that_came_behind_the_reader_stop_the_run_unless_a_safety_window_reads_them_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stream.folder.parent / "shop.db"
    counted = SqlConnector.count

    def late(self: SqlConnector, *window: Any) -> int | None:
        write(path, "INSERT OR IGNORE INTO orders VALUES (9, 'late', '2026-01-01T10:00:00Z')")
        return counted(self, *window)

    monkeypatch.setattr(SqlConnector, "count", late)
    with pytest.raises(ChecksFailed, match=r"the source has 1 more records than were read.*safety_window"):
        run_without_harness(stream)
    assert (stream.state, stream.snapshot()) == (None, None)
    monkeypatch.setattr(SqlConnector, "count", counted)
    stream.run()  # the window is read anew
    assert [record["id"] for record in stream.latest()] == [0, 1, 2, 9]

    write(path, "DELETE FROM orders WHERE id = 9", "INSERT INTO orders VALUES (5, 'ink', '2026-01-01T10:00:07Z')")
    stream.describe("sql", {"url": f"sqlite:///{path}"}, **WORDS, safety_window="PT1H")
    monkeypatch.setattr(SqlConnector, "count", lambda self, *window: counted(self, *window) + 1)  # type: ignore[operator]
    stream.run()
    assert 5 in [record["id"] for record in stream.latest()]


def run_without_harness(stream: Stream) -> None:
    run = IngestRun(stream.subject, str(uuid4()))
    run.begin()
    try:
        run.land(run.plan())
        run.publish()
    finally:
        run.end()


def test_a_registry_that_is_down_at_the_commit_leaves_a_state_that_the_next_run_moves(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = stream.subject
    run = IngestRun(subject, str(uuid4()))
    run.begin()
    run.land(run.plan())
    database = subject.platform.config.control.removeprefix("sqlite:///")
    with closing(sqlite3.connect(database, isolation_level=None)) as lock:

        def then_down(*given: Any, **more: Any) -> int | None:
            published = publish_branch(*given, **more)
            lock.execute("BEGIN EXCLUSIVE")
            return published

        monkeypatch.setattr(engine, "publish_branch", then_down)
        with pytest.raises(ControlError):
            run.publish()
        lock.execute("ROLLBACK")
    monkeypatch.undo()
    run.end()
    assert stream.state is None
    stream.run()
    assert stream.state == "2026-01-01T10:00:02Z"
    assert [record["id"] for record in stream.changes()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ADD COLUMN colour TEXT DEFAULT 'red'", "fields that the source does not describe: colour"),
        ("DROP COLUMN item", "changed while it was read"),
    ],
)
def test_fields_that_change_while_a_run_reads_stop_it_and_are_in_the_next(stream: Stream, change: str, words: str) -> None:
    run = IngestRun(stream.subject, str(uuid4()))
    run.begin()
    try:
        plan = run.plan()
        write(stream.folder.parent / "shop.db", f"ALTER TABLE orders {change}")
        with pytest.raises(SchemaRefused, match=words), run.step("land"):
            run.land(plan)
    finally:
        run.end()
    assert stream.snapshot() is None
    stream.run()
    wanted = ("pen", "red") if "colour" in change else (None, None)
    assert {(record["item"], record.get("colour")) for record in stream.latest()} == {wanted}


def test_a_page_that_fails_is_asked_for_later_and_smaller_and_then_named(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    pauses: list[float] = []

    class Failing(SqlConnector):
        def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
            asked.append(page_size)
            raise SourceError("no")

    # Only there: other threads of this process sleep too.
    monkeypatch.setattr(slices, "time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(slices, "random", SimpleNamespace(uniform=lambda low, high: high))
    run = IngestRun(stream.subject, str(uuid4()))
    run.begin()
    try:
        plan = run.plan()
        lander = replace(
            run.engine.lander(plan, None), connector=Failing(stream.subject.connector.settings, {}), page_size=8000
        )
        with pytest.raises(SliceFailed, match="in 4 attempts: no"):
            lander.land(plan.slices[0])
    finally:
        run.end()
    assert asked == [8000, 2000, 500, max(125, SMALLEST_PAGE)]
    assert pauses == sorted(pauses)
    assert len(set(pauses)) == 3


def test_progress_tells_slices_pages_records_and_the_rate(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_code.connectors.watching.EVERY", 0.001)
    events: list[Event] = []
    with listening(events.append):
        stream.run()
    last = [event for event in events if isinstance(event, Advanced)][-1]
    assert (last.subject, last.unit, last.done, last.total, last.rows) == (stream.subject.address, "slice", 1, 1, 3)
    assert last.note.startswith("1 pages, 3 records, ")
    assert [event.step for event in events if isinstance(event, StepEnded)] == ["plan", "land", "verify", "publish", "state"]


def test_a_clock_without_a_zone_that_is_set_back_lands_nothing_twice(tmp_path: Path, spark: SparkForTests) -> None:
    """In Bronze it is still the first of January where it is the second in UTC, which state and window are told in."""
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as db:
        db.execute('CREATE TABLE orders (id INTEGER, "at" TIMESTAMP)')
        db.execute("INSERT INTO orders VALUES (1, '2026-01-01 20:00:00'), (2, '2026-01-01 22:00:00')")
    words = WORDS | {"cursor_zone": "America/New_York"}
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": f"duckdb:///{tmp_path}/shop.duckdb"}, **words)
    stream.run()
    stream.subject.marks.rewind(
        stream.subject.address, to_value="2026-01-02T02:00:00Z", actor="a", reason="once more, from nine o'clock"
    )
    stream.run()
    assert (stream.last_run.detail["rows"]["read"], stream.last_run.detail["rows"]["landed"]) == (1, 0)
    assert [record["id"] for record in stream.changes()] == [1, 2]


def test_a_key_may_have_any_name(tmp_path: Path, spark: SparkForTests) -> None:
    path, name = tmp_path / "shop.db", 'no. "1"'
    write(path, 'CREATE TABLE orders ("no. ""1""" INTEGER PRIMARY KEY, at DATETIME)')
    write(path, "INSERT INTO orders VALUES (7, '2026-01-01T10:00:00Z')")
    stream = Stream.make(tmp_path / "lake", spark, "sql", {"url": f"sqlite:///{path}"}, **WORDS | {"key": [name]})
    stream.run()
    assert [record[name] for record in stream.latest(name)] == [7]
