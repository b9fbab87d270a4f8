"""How every subject is doing, from a real control database."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from tidemark.clock import ManualClock
from tidemark.control import ControlDatabase
from tidemark.runs.system import Configured
from tidemark.status import State, SubjectStatus, statuses

pytestmark = pytest.mark.fast

SHOP = "catalog/shop"
HOURLY = "0 * * * *"
START = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def control(tmp_path: Path, clock: ManualClock) -> Iterator[ControlDatabase]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/control.db", clock)
    yield database
    database.close()


def shop(control: ControlDatabase, clock: ManualClock, schedule: str | None = None) -> SubjectStatus:
    (found,) = statuses(control, [Configured(SHOP, schedule)], ["t1"], clock.now())
    return found


def ran(control: ControlDatabase, run_id: str, status: str = "published", **fields: object) -> None:
    control.runs.begin(SHOP, run_id)
    control.runs.finish(run_id, status, **fields)  # type: ignore[arg-type]


def test_a_subject_without_a_run_is_new_until_a_tick_after_its_file_was_written_passes(control, clock, tmp_path):
    file = tmp_path / "tidemark.yaml"
    file.touch()
    os.utime(file, (START.timestamp(), START.timestamp()))
    wanted = [Configured(SHOP, HOURLY, file=str(file))]
    (found,) = statuses(control, wanted, ["t1"], clock.now())
    assert (found.state, found.run, found.error) == (State.NEW, None, None)
    assert found.next_due == START + timedelta(hours=1)
    clock.advance(timedelta(minutes=74))
    assert statuses(control, wanted, ["t1"], clock.now())[0].state is State.NEW
    clock.advance(timedelta(minutes=2))
    (found,) = statuses(control, wanted, ["t1"], clock.now())
    assert found.state is State.OVERDUE
    assert "no run that counts since 2026-03-01 11:00" in found.error


def test_a_run_that_goes_on_past_the_next_tick_is_overdue_although_it_lives(control, clock):
    ran(control, "r0")
    control.runs.begin(SHOP, "r1")
    clock.advance(timedelta(minutes=14))
    with control.leases.hold(SHOP, "r1"):
        assert shop(control, clock, HOURLY).state is State.RUNNING
    clock.advance(timedelta(hours=1, minutes=2))
    with control.leases.hold(SHOP, "r1"):
        found = shop(control, clock, HOURLY)
        assert found.state is State.OVERDUE
        assert "run r1 has been under way since 2026-03-01 10:00 UTC" in found.error
        assert shop(control, clock).state is State.RUNNING, "without a schedule nobody says how long it may take"


def test_a_run_that_counts_makes_a_subject_ok(control, clock):
    control.marks.move(SHOP, None, "m", run_id="r1", actor="ann@ship", reason="run")
    ran(control, "r1")
    found = shop(control, clock)
    assert (found.state, found.run.run_id, found.marked_at) == (State.OK, "r1", START)
    assert found.next_due is None


@pytest.mark.parametrize("status", ["failed", "abandoned"])
def test_a_run_that_failed_last_makes_a_subject_failed_until_one_counts(control, clock, status):
    ran(control, "r1")
    ran(control, "r2", status, error="SourceUnreachable: nobody answers")
    found = shop(control, clock)
    assert (found.state, found.error) == (State.FAILED, "SourceUnreachable: nobody answers")
    ran(control, "r3", "unchanged")
    assert shop(control, clock).state is State.OK


def test_upkeep_that_succeeds_does_not_hide_a_failed_run(control, clock):
    ran(control, "r1", "failed", error="x")
    ran(control, "upkeep-1", "unchanged", mode="upkeep")
    assert shop(control, clock).state is State.FAILED


def test_a_run_whose_lease_is_held_is_running(control, clock):
    with control.leases.hold(SHOP, "r1"):
        control.runs.begin(SHOP, "r1")
        assert shop(control, clock).state is State.RUNNING


def test_a_run_without_a_living_lease_is_stuck_and_says_what_becomes_of_it(control, clock):
    control.runs.begin(SHOP, "r1")
    found = shop(control, clock)
    assert found.state is State.STUCK
    assert "r1 is gone. The next run recovers automatically." in found.error
    with control.leases.hold(SHOP, "another"):
        assert shop(control, clock).state is State.STUCK, "the lease is another run's"


def test_a_tick_that_no_run_answered_makes_a_subject_overdue_after_a_grace(control, clock):
    clock.advance(timedelta(minutes=5))
    ran(control, "r1")  # 10:05
    clock.advance(timedelta(minutes=55))  # 11:00, the tick
    assert shop(control, clock, HOURLY).state is State.OK
    clock.advance(timedelta(minutes=14, seconds=59))
    assert shop(control, clock, HOURLY).state is State.OK
    clock.advance(timedelta(seconds=1))
    late = shop(control, clock, HOURLY)
    assert (late.state, late.due_since) == (State.OVERDUE, START + timedelta(hours=1))
    assert "no run that counts since 2026-03-01 11:00 UTC" in late.error
    assert shop(control, clock, None).state is State.OK, "without a schedule nobody says when it is due"
    ran(control, "r2", "unchanged")
    assert shop(control, clock, HOURLY).state is State.OK


def test_a_run_that_a_wrong_clock_dated_ahead_answers_no_tick(control, clock):
    clock.advance(timedelta(days=30))
    ran(control, "r1")
    clock.advance(-timedelta(days=30))
    found = shop(control, clock, HOURLY)
    assert found.state is State.OVERDUE
    assert "run r1 ended at 2026-03-31 10:00 UTC, which is still to come" in found.error
    assert shop(control, clock).state is State.OK, "without a schedule nobody says when it is due"
    ran(control, "r2", "unchanged")
    assert shop(control, clock, HOURLY).state is State.OK


def test_a_run_that_another_host_dated_some_minutes_ahead_answers_its_tick(control, clock):
    clock.advance(timedelta(minutes=10))
    ran(control, "r1")
    clock.advance(-timedelta(minutes=10))
    assert shop(control, clock, HOURLY).state is State.OK


@pytest.mark.parametrize("mode", ["upkeep", "rewind", "rollback", "restore", "backfill"])
def test_a_run_that_did_not_look_for_what_is_new_answers_no_tick(control, clock, mode):
    ran(control, "r1", mode="incremental")
    clock.advance(timedelta(hours=2))
    ran(control, "aside-1", "published", mode=mode)
    late = shop(control, clock, HOURLY)
    assert (late.state, late.dated_ahead) == (State.OVERDUE, False)
    assert "no run that counts since" in late.error
    ran(control, "r2", "unchanged", mode="full")
    assert shop(control, clock, HOURLY).state is State.OK


def test_the_number_of_queries_does_not_grow_with_the_subjects(control, clock):
    wanted = [Configured(f"catalog/c{number}", HOURLY) for number in range(50)]
    for each in wanted:
        control.runs.begin(each.address, f"run of {each.address}")
    seen: list[str] = []
    sa.event.listen(control._transactions._engine, "before_cursor_execute", lambda *call: seen.append(call[2]))
    assert {each.state for each in statuses(control, wanted, ["t1"], clock.now())} == {State.STUCK}
    assert len([statement for statement in seen if "tidemark_" in statement]) <= 6
