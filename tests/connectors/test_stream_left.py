"""What stopped runs of a stream leave: who takes it over, who deletes it, and what becomes of it when it is damaged."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from spark_code.connectors.moving import was_moved_back
from spark_code.connectors.plan import HUGE, IngestPlan
from spark_code.connectors.rollback import roll_back_stream
from tests.connectors.sparkless import SparklessStream
from tidemark import faults
from tidemark.checks import CheckResult
from tidemark.connectors.contract import Slice
from tidemark.connectors.landing import SliceDone
from tidemark.control import AuditRow, Marks
from tidemark.control.runs import MARK_VERSION
from tidemark.errors import ChecksFailed, MarkMoved
from tidemark.runs import recover
from tidemark.runs.by_hand import rewind

LIMIT = 60


@pytest.fixture(autouse=True)
def nobody_watches() -> Iterator[None]:
    yield
    faults.watcher = None


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparklessStream:
    """A stream that was read once, and has something new."""
    made = SparklessStream.make(tmp_path, monkeypatch)
    made.add(range(1, 6))
    made.run("first")
    made.add(range(6, 9))
    return made


class Stopped(BaseException):
    """As a kill: nobody handles it."""


def stop_at(point: str, times: int = 1) -> None:
    """Ends whoever comes to the point for the n-th time."""
    left = times

    def watch(name: str) -> None:
        nonlocal left
        left -= name == point
        if name == point and left == 0:
            raise Stopped

    faults.watcher = watch


def stopped_run(stream: SparklessStream, run_id: str, point: str = "slice.after_done", times: int = 1) -> None:
    stop_at(point, times)
    with pytest.raises(Stopped):
        stream.run(run_id)
    faults.watcher = None


# --- a finished run that tidies up late ----------------------------------------------------------------------------------


def asleep(stream: SparklessStream, point: str, meanwhile: Callable[[Callable[[], None]], Any]) -> None:
    """A run that has finished is stopped at the point. `meanwhile` is given what wakes it, and waits until it has ended."""
    reached, go_on = Event(), Event()

    def watch(name: str) -> None:
        if name == point and current_thread() is zombie:
            reached.set()
            assert go_on.wait(LIMIT)

    def wake() -> None:
        go_on.set()
        zombie.join(LIMIT)

    zombie = Thread(target=stream.run, args=("asleep",))
    faults.watcher = watch
    zombie.start()
    try:
        assert reached.wait(LIMIT), point
        stream.expire_lease()
        meanwhile(wake)
    finally:
        wake()
        faults.watcher = None


def wake_at(point: str, wake: Callable[[], None]) -> None:
    before, here = faults.watcher, current_thread()

    def watch(name: str) -> None:
        if name == point and current_thread() is here:
            wake()
        elif before:
            before(name)

    faults.watcher = watch


@pytest.mark.parametrize("sleeps_at", ["run.after_finish", "ingest.before_tidy", "ingest.before_deletes"])
@pytest.mark.parametrize("wakes_at", ["slice.after_done", "ingest.before_state", "run.after_finish"])
def test_a_run_that_tidies_up_late_leaves_the_run_after_it_alone(
    stream: SparklessStream, monkeypatch: pytest.MonkeyPatch, sleeps_at: str, wakes_at: str
) -> None:
    # It has asked for its lease before it is stopped, wherever that is.
    monkeypatch.setattr("tidemark.runs.run.Run.confirm", lambda _: None)

    def meanwhile(wake: Callable[[], None]) -> None:
        stream.add(range(9, 12))
        wake_at(wakes_at, wake)
        stream.run("after it")

    asleep(stream, sleeps_at, meanwhile)
    assert (stream.landed(), stream.state) == (list(range(1, 12)), "11")
    assert stream.kept() == []


@pytest.mark.parametrize("wakes_at", ["ingest.after_plan", "bronze.after_add_files", "ingest.before_state"])
def test_a_run_that_tidies_up_late_leaves_slices_that_were_taken_over_alone(
    stream: SparklessStream, monkeypatch: pytest.MonkeyPatch, wakes_at: str
) -> None:
    monkeypatch.setattr("tidemark.runs.run.Run.confirm", lambda _: None)

    def meanwhile(wake: Callable[[], None]) -> None:
        stream.add(range(9, 20))
        wake_at("slice.after_done", end_here)
        with pytest.raises(Stopped):
            stream.run("stopped")
        wake_at("slice.after_done", lambda: None)
        wake_at(wakes_at, wake)
        stream.run("goes on")

    asleep(stream, "run.after_finish", meanwhile)
    assert stream.reasons()[-1] == ("goes on", "published", "resumed")
    assert (stream.landed(), stream.state) == (list(range(1, 20)), "19")
    assert stream.kept() == []


def end_here() -> None:
    raise Stopped


def test_files_of_a_plan_that_was_given_up_are_deleted_by_the_run_that_finishes(stream: SparklessStream) -> None:
    before = stream.data_files()
    stopped_run(stream, "stopped")
    (lost,) = stream.data_files() - before
    stream.run("everything", full=True)
    assert not lost.exists()
    assert stream.kept() == []
    assert stream.landed() == list(range(1, 9))


def test_a_stream_that_fails_again_and_again_leaves_no_more_than_one_failed_run_does(
    stream: SparklessStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stream.data_files()
    with monkeypatch.context() as wrong:
        wrong.setattr("spark_code.connectors.engine.verify_landing", lambda *_: [CheckResult("no_luck", False, "not today")])
        left = []
        for number in range(4):
            with pytest.raises(ChecksFailed):
                stream.run(f"failed{number}")
            left.append((len(stream.data_files() - before), len(stream.kept())))
    assert left == [left[0]] * 4
    assert stream.subject.busy() is None, "nobody goes on from what failed its checks"
    stream.run("good")
    assert stream.kept() == []
    assert stream.landed() == list(range(1, 9))


def test_upkeep_leaves_the_files_of_a_plan_alone_that_a_run_goes_on_from(stream: SparklessStream) -> None:
    stopped_run(stream, "stopped")
    stream.expire_lease()
    recover(stream.subject, "by hand", lambda: None)
    assert stream.subject.busy() == "a stopped run waits to go on from its files"


# --- damage --------------------------------------------------------------------------------------------------------------


def tear(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [tear, Path.unlink], ids=["torn", "lost"])
def test_a_slice_whose_file_is_damaged_is_read_again(stream: SparklessStream, damage: Callable[[Path], None]) -> None:
    before = stream.data_files()
    stopped_run(stream, "stopped")
    (file,) = stream.data_files() - before
    damage(file)
    stream.run("next")
    assert (stream.landed(), stream.state) == (list(range(1, 9)), "8")


def test_of_two_slices_the_whole_one_is_kept_and_the_damaged_one_read_again(
    stream: SparklessStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_slices(stream, monkeypatch)
    before = stream.data_files()
    stopped_run(stream, "stopped", times=2)
    files = sorted(stream.data_files() - before)
    assert len(files) == 2
    files[0].unlink()
    stream.run("next")
    assert stream.reasons()[-1] == ("next", "published", "resumed")
    assert stream.landed() == list(range(1, 9))


def two_slices(stream: SparklessStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window in two: up to 6, and the rest."""

    def cut(_: object, __: object, window: Any, *___: Any, **____: Any) -> list[Slice]:
        lower, upper = str(window.lower), str(window.upper)
        return (
            [Slice(0, lower, "7"), Slice(1, "7", upper, window.closed)] if int(lower) < 7 else [Slice(0, lower, upper, True)]
        )

    monkeypatch.setattr(type(stream.subject.connector), "slices", cut)


def test_a_plan_that_no_run_gets_on_with_is_given_up(stream: SparklessStream) -> None:
    stopped_run(stream, "stopped")
    for number in range(3):
        stopped_run(stream, f"next {number}", "bronze.before_add_files")
    assert [reason for _, _, reason in stream.reasons()[2:]] == ["resumed", "resumed", "state found"]
    stream.run("last")
    assert stream.landed() == list(range(1, 9))


def test_a_plan_that_a_run_got_on_with_is_taken_over_again(stream: SparklessStream, monkeypatch: pytest.MonkeyPatch) -> None:
    two_slices(stream, monkeypatch)
    stopped_run(stream, "stopped")
    stopped_run(stream, "for nothing", "slice.read")
    stopped_run(stream, "got on", "slice.after_done")
    stopped_run(stream, "for nothing again", "bronze.before_add_files")
    stream.run("last")
    assert [reason for _, _, reason in stream.reasons()[2:]] == ["resumed"] * 4
    assert stream.landed() == list(range(1, 9))


NOTES = {
    "torn": b'{"number": 0, "re',
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "a list": b"[1]",
    "of a later version": b'{"number": 0, "files": [], "quarantine": [], "late": [], "colour": 1}',
    "of an older version": b'{"number": 0, "files": []}',
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_note_that_cannot_be_read_is_a_slice_that_was_not_finished(stream: SparklessStream, note: bytes) -> None:
    assert SliceDone.read_from(note) is None
    stopped_run(stream, "stopped")
    (key,) = [each for each in stream.kept() if "/slices/" in each]
    stream.platform.store.put(key, note)
    stream.run("next")
    assert (stream.landed(), stream.state) == (list(range(1, 9)), "8")
    assert stream.kept() == []


# --- after somebody moved the state --------------------------------------------------------------------------------------

CURSORS: dict[str, tuple[str, dict[str, Any], Callable[[int], Any]]] = {
    "numbers": ("INTEGER", {}, int),
    "texts": ("TEXT", {"cursor_type": "text"}, lambda number: f"{number:04}'"),
    "decimals": ("REAL", {"cursor_type": "decimal"}, lambda number: number + 0.5),
    "clocks": ("DATETIME", {"cursor_type": "timestamp"}, lambda number: f"2026-01-{number:02}T10:00:00Z"),
}


@pytest.mark.parametrize("kind", CURSORS)
def test_after_a_rewind_with_nothing_new_the_state_goes_on_to_what_had_landed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    column, described, cursor = CURSORS[kind]
    stream = SparklessStream.make(tmp_path, monkeypatch, column, **described)
    stream.add([1, 2, 9, 10], cursor)
    stream.run("first")
    subject = stream.subject
    rewind(stream.platform.control, subject.marks, subject.address, "again", lambda _: {"to_value": str(cursor(2))})
    stream.run("again")
    assert stream.state == str(cursor(10))
    assert stream.landed() == [1, 2, 9, 10]


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_what_is_looked_for_after_a_rewind_is_found_by_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    column, described, cursor = CURSORS[kind]
    stream = SparklessStream.make(tmp_path, monkeypatch, column, **described)
    stream.add(range(1, 2001), cursor)
    stream.run("first")
    subject = stream.subject
    rewind(stream.platform.control, subject.marks, subject.address, "again", lambda _: {"to_value": str(cursor(1990))})
    parsed: list[object] = []
    greatest_before, parse = IngestPlan.greatest_before, type(subject.stream).parse_cursor

    def counted(spec: Any, raw: Any) -> Any:
        parsed.append(raw)
        return parse(spec, raw)

    def measured(plan: IngestPlan, subject: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(type(subject.stream), "parse_cursor", counted)
            return greatest_before(plan, subject)

    monkeypatch.setattr(IngestPlan, "greatest_before", measured)
    stream.run("again")
    assert stream.state == str(cursor(2000))
    assert len(parsed) < 10


@pytest.mark.parametrize("huge", [HUGE, 1], ids=["by the engine", "too long for the engine"])
def test_the_end_of_the_window_is_not_passed_by_what_had_landed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, huge: int
) -> None:
    monkeypatch.setattr("spark_code.connectors.plan.HUGE", huge)
    stream = SparklessStream.make(tmp_path, monkeypatch)
    stream.add(range(1, 11))
    stream.run("first")
    plan = IngestPlan("r", 1, False, None, 0, "2", "7", False, (), 10, "", "", "")
    assert str(plan.greatest_before(stream.subject)) == "6"
    assert str(IngestPlan(**{**plan.__dict__, "closed": True}).greatest_before(stream.subject)) == "7"
    assert IngestPlan(**{**plan.__dict__, "lower": "11", "upper": None}).greatest_before(stream.subject) is None


def test_whether_the_state_was_moved_is_asked_of_its_last_move_alone(
    stream: SparklessStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[AuditRow] = []
    audit = Marks.audit

    def noted(marks: Marks, *given: Any, **options: Any) -> Any:
        found = audit(marks, *given, **options)
        loaded.extend(found)
        return found

    stream.run("second")
    monkeypatch.setattr(Marks, "audit", noted)
    assert not was_moved_back(stream.subject)
    assert len(loaded) == 1


@pytest.mark.parametrize("had_a_state", [True, False])
def test_a_rollback_takes_back_no_state_that_somebody_moved_meanwhile(stream: SparklessStream, had_a_state: bool) -> None:
    stream.run("second")
    subject = stream.subject
    runs, marks = stream.platform.control.runs, subject.marks
    to = runs.find(subject.address, "first")
    if not had_a_state:
        reset = marks.reset(subject.address, actor="me", reason="read everything")
        to = replace(to, detail={**to.detail, MARK_VERSION: reset})
        stream.run("third")

    def watch(name: str) -> None:
        if name == "rollback.before_state":
            faults.watcher = None
            marks.rewind(subject.address, to_value="3", actor="me", reason="by hand")

    faults.watcher = watch
    with pytest.raises(MarkMoved):
        roll_back_stream(subject, to, "wrong prices")
    assert stream.state == "3"
