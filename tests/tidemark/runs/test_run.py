"""The shared run, by a toy system: killed at every point, stopped and woken, refused, interrupted."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.runs.kills import Kills, Scenario
from tests.runs.places import Folder
from tests.runs.toy import Sum, add_up
from tests.runs.toy_kills import SCENARIOS, ToyVictim, changed
from tests.runs.zombies import wake_after_takeover
from tidemark.clock import ManualClock
from tidemark.control import ControlDatabase
from tidemark.errors import (
    ChecksFailed,
    Interrupted,
    RunInProgress,
    StateError,
    UnexpectedFailure,
)
from tidemark.runs import Run
from tidemark.runs.events import Event, RunEnded, RunStarted, StepEnded, StepStarted, listening
from tidemark.runs.rollback import version_left_by
from tidemark.runs.upkeep import keep_up


@pytest.fixture
def toy(tmp_path: Path) -> Sum:
    return ToyVictim.make(tmp_path / "here").toy


def feed(toy: Sum, *numbers: int) -> None:
    with (toy.platform.config.path.parent / "source.txt").open("a") as file:
        file.write(" ".join(map(str, numbers)) + "\n")


def total(toy: Sum) -> int:
    return int(json.loads(toy.platform.store.read("toy/numbers/sum.json"))["total"])


def mark(toy: Sum) -> str | None:
    found = toy.control.marks.get(toy.address)
    return found.value if found else None


@pytest.mark.fast
def test_a_run_goes_from_lease_to_mark_and_tells_so(toy: Sum) -> None:
    events: list[Event] = []
    with listening(events.append):
        first = add_up(toy)
    assert (first.status, first.mode, first.reason, total(toy), mark(toy)) == ("published", "full", "no state", 6, "3")
    kinds = [type(event) for event in events]
    assert (kinds[0], kinds[-1]) == (RunStarted, RunEnded)
    started = [event.step for event in events if isinstance(event, StepStarted)]
    ended = [event.step for event in events if isinstance(event, StepEnded)]
    assert started == ended == ["read", "stage", "verify", "publish", "mark"]
    assert {event.subject for event in events} == {"toy/numbers"}
    assert add_up(toy).status == "unchanged"
    feed(toy, 4)
    assert (add_up(toy).mode, total(toy), mark(toy)) == ("incremental", 10, "4")
    assert toy.control.leases.held() == []


@pytest.mark.fast
def test_a_second_run_is_refused_while_one_is_under_way(toy: Sum) -> None:
    with Run(toy, "first"), pytest.raises(RunInProgress, match=r"toy/numbers: run first is in progress"):
        add_up(toy)
    assert toy.control.runs.find(toy.address, "first").status == "failed"


@pytest.mark.fast
def test_an_id_that_a_dead_process_has_used_is_closed_and_refused(toy: Sum) -> None:
    """What the dead run noted under its id must not pass for notes of the new one."""
    toy.control.runs.begin(toy.address, "used")
    with pytest.raises(StateError, match="run used is in the ledger already, as a run of toy/numbers that is abandoned"):
        add_up(toy, "used")
    assert toy.control.leases.held() == []
    assert add_up(toy, "another").status == "published"


@pytest.mark.fast
def test_an_error_after_publication_does_not_say_that_nothing_was_published(toy: Sum) -> None:
    run = Run(toy, "late").begin()
    run.published = True
    with pytest.raises(UnexpectedFailure, match="What it published stays"), run.step("mark"):
        int("two")
    run.end()
    error = toy.control.runs.find(toy.address, "late").error
    assert error is not None
    assert "Nothing was published" not in error


@pytest.mark.fast
def test_a_rollback_finds_the_mark_a_run_left_also_when_the_clock_was_set_back_since(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 3, 1, 7, 0, tzinfo=UTC))
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db", clock)
    said = {"actor": "ann@ship", "reason": "run"}
    marks = control.marks
    for run_id, status in (("r1", "published"), ("r2", "unchanged"), ("r3", "published")):
        control.runs.begin("toy/numbers", run_id)
        if status == "published":
            marks.move("toy/numbers", marks.version("toy/numbers") or None, run_id, run_id=run_id, **said)
        control.runs.finish(run_id, status)
        clock.advance(timedelta(hours=-1))
    left = {run_id: control.runs.find("toy/numbers", run_id) for run_id in ("r1", "r2", "r3")}
    assert {run_id: version_left_by(marks, run) for run_id, run in left.items()} == {"r1": 1, "r2": 1, "r3": 2}
    marks.reset("toy/numbers", **said)
    control.runs.begin("toy/numbers", "r4")
    assert version_left_by(marks, control.runs.finish("r4", "unchanged")) is None


@pytest.mark.fast
def test_every_end_has_an_error_of_ours_in_the_ledger(toy: Sum, monkeypatch: pytest.MonkeyPatch) -> None:
    source = toy.platform.config.path.parent / "source.txt"
    source.write_text("1 two 3")
    with pytest.raises(UnexpectedFailure, match="toy/numbers: ValueError"), Run(toy, "foreign") as run, run.step("read"):
        int("two")
    with pytest.raises(KeyboardInterrupt), Run(toy, "stopped") as run, run.step("read"):
        raise KeyboardInterrupt
    with pytest.raises(ZeroDivisionError), Run(toy, "outside"):
        1 / 0  # noqa: B018
    errors = {name: toy.control.runs.find(toy.address, name).error for name in ("foreign", "stopped", "outside")}
    assert errors["foreign"].startswith("UnexpectedFailure: toy/numbers: ValueError in the step 'read'")
    assert "two" not in errors["foreign"]
    assert errors["stopped"].startswith(f"{Interrupted.__name__}: toy/numbers: the run was stopped")
    assert errors["outside"].startswith("UnexpectedFailure: toy/numbers: ZeroDivisionError")
    assert toy.control.leases.held() == []


@pytest.mark.fast
def test_a_check_that_fails_publishes_nothing_and_leaves_the_mark(toy: Sum) -> None:
    add_up(toy)
    toy.platform.store.put(
        "toy/numbers/sum.json", json.dumps({"run_id": "x", "total": 7, "lines": 3, "expected": 0}).encode()
    )
    feed(toy, 4)
    with pytest.raises(ChecksFailed, match="total_is_right"):
        add_up(toy)
    assert (total(toy), mark(toy)) == (7, "3")
    assert list(toy.platform.store.list("toy/numbers/staged")) == []


@pytest.mark.fault
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_whatever_is_killed_at_any_point_is_finished_or_undone_by_the_next_run(
    scenario: Scenario[ToyVictim], tmp_path: Path
) -> None:
    victim, place = ToyVictim.make(tmp_path / "here"), Folder(tmp_path / "here")
    Kills(victim, scenario, place, tmp_path / "trace", parts=1).part(0)


def fed_again(victim: ToyVictim) -> None:
    victim.feed(20)
    victim.run()


@pytest.mark.fault
@pytest.mark.parametrize(
    "point", ["run.after_lease", "run.after_begin", "toy.staged", "control.before_mark_move", "run.after_finish"]
)
def test_a_process_that_was_stopped_and_woken_changes_nothing(point: str, tmp_path: Path) -> None:
    victim = ToyVictim.make(tmp_path / "here")
    changed(victim)
    finished, place = point == "run.after_finish", Folder(tmp_path / "here")
    wake_after_takeover(victim, ToyVictim.run, point, fed_again, place, tmp_path / "gate", finished=finished)


@pytest.mark.fast
def test_upkeep_is_a_run_in_the_history_and_not_the_latest_state(toy: Sum) -> None:
    first = add_up(toy)
    done = keep_up(toy, None, older_than=timedelta(0))
    assert (done.mode, done.status) == ("upkeep", "unchanged")
    assert [run.mode for run in toy.control.runs.history(toy.address)] == ["upkeep", "full"]
    latest = toy.control.runs.latest(toy.address)
    assert latest is not None
    assert latest.run_id == first.run_id
