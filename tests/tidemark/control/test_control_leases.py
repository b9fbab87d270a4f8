import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier, Event

import pytest
import sqlalchemy as sa

from tidemark.clock import SystemClock
from tidemark.control import ControlDatabase, HeldLease, Lease
from tidemark.control.process import proven_dead, this_process
from tidemark.control.schema import leases
from tidemark.errors import ControlError, LeaseLost, RunInProgress

SHOP = "catalog/shop"
TTL = timedelta(seconds=60)

CHILD = """
import sys
from tidemark.control import ControlDatabase

with ControlDatabase(sys.argv[1]).leases.hold("catalog/shop", "child"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def child(control_url):
    """A real process that holds the lease until it is killed or its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, control_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def row(control):
    with control._transactions.reading() as connection:
        return connection.execute(sa.select(leases).where(leases.c.subject == SHOP)).one()


def change_row(control, **values):
    with control._transactions.writing() as connection:
        connection.execute(sa.update(leases).where(leases.c.subject == SHOP).values(**values))


def test_who_holds_a_lease_can_be_asked(control, child):
    assert control.leases.holder("nobody ever held this") is None
    assert control.leases.holder(SHOP) == "child"
    child.kill()
    child.wait()
    assert control.leases.holder(SHOP) is None
    with control.leases.hold(SHOP, "r1"):
        assert control.leases.holder(SHOP) == "r1"
    assert control.leases.holder(SHOP) is None


def test_the_leases_that_are_held_now_are_listed(control, clock):
    assert control.leases.held() == []
    with control.leases.hold(SHOP, "r1", TTL), control.leases.hold("model/silver.carts", "r2", 2 * TTL):
        me, now = this_process(), clock.now()
        assert control.leases.held() == [
            HeldLease(SHOP, "r1", me.host, me.pid, now, now + TTL),
            HeldLease("model/silver.carts", "r2", me.host, me.pid, now, now + 2 * TTL),
        ]
        clock.advance(TTL)
        assert [held.run_id for held in control.leases.held()] == ["r2"]
    assert control.leases.held() == []


def test_the_lease_of_a_dead_process_is_not_held(control, child):
    assert [held.run_id for held in control.leases.held()] == ["child"]
    child.kill()
    child.wait()
    assert control.leases.held() == []


class WrongClock(SystemClock):
    """The clock of a host that was set wrong."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self):
        return super().now() + self._by


@pytest.mark.service
@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=-1)], ids=["ahead", "behind"])
def test_hosts_whose_clocks_differ_agree_on_a_lease(control_postgres, ahead):
    url = control_postgres.new_database()
    here, there = ControlDatabase(url, WrongClock(-ahead)), ControlDatabase(url, WrongClock(ahead))
    with here.leases.hold(SHOP, "r1") as lease:
        change_row(here, host="another")  # it cannot be seen whether that process lives: the time decides
        with pytest.raises(RunInProgress), there.leases.hold(SHOP, "r2"):
            pass
        assert [held.run_id for held in there.leases.held()] == ["r1"]
        lease.confirm()
        assert there.leases.holder(SHOP) == "r1"
        change_row(here, expires_at=SystemClock().now() - timedelta(seconds=1))
        with there.leases.hold(SHOP, "r2"), pytest.raises(LeaseLost):
            lease.confirm()
    here.close()
    there.close()


def test_a_lease_is_held_inside_the_block_and_free_after_it(control):
    with control.leases.hold(SHOP, "r1") as lease:
        assert (lease.subject, lease.run_id, lease.token) == (SHOP, "r1", 1)
        lease.confirm()
        assert row(control).run_id == "r1"
    assert row(control).run_id is None
    with control.leases.hold(SHOP, "r2") as lease:
        assert lease.token == 2


def test_a_lease_that_was_given_back_confirms_nothing(control):
    with control.leases.hold(SHOP, "r1") as lease:
        pass
    with pytest.raises(LeaseLost):
        lease.confirm()
    assert row(control).expires_at is None


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_lease_is_free_after_any_way_out(control, error):
    with pytest.raises(error), control.leases.hold(SHOP, "r1"):
        raise error
    assert row(control).run_id is None


def test_the_heart_stops_with_the_block(control):
    with control.leases.hold(SHOP, "r1"):
        assert f"lease of {SHOP}" in [thread.name for thread in threading.enumerate()]
    assert f"lease of {SHOP}" not in [thread.name for thread in threading.enumerate()]


def test_the_loser_is_told_who_holds_it(control, clock):
    with control.leases.hold(SHOP, "r1") as lease:
        with pytest.raises(RunInProgress) as told, control.leases.hold(SHOP, "r2"):
            pytest.fail("two runs at once")
        lease.confirm()
    words = str(told.value)
    assert f"{SHOP}: run r1 is in progress on {this_process().host} (pid {os.getpid()})" in words
    assert "since 2026-01-02 03:04:05 UTC" in words
    assert "free from 2026-01-02 03:05:05 UTC" in words
    assert "Wait until it ends" in words


def test_a_run_cannot_take_its_own_lease_twice(control):
    """Two threads of one process may do the same run: only a commit whose answer was lost is recognised."""
    with control.leases.hold(SHOP, "r1"), pytest.raises(RunInProgress), control.leases.hold(SHOP, "r1"):
        pytest.fail("the same run twice")


def test_another_subject_is_not_in_the_way(control):
    with control.leases.hold(SHOP, "r1"), control.leases.hold("catalog/other", "r2"):
        pass


def test_a_living_process_keeps_its_lease(control_url, child):
    # With a clock of its own: the child's is the machine's.
    control = ControlDatabase(control_url, SystemClock())
    with pytest.raises(RunInProgress, match=rf"run child .*\(pid {child.pid}\)"), control.leases.hold(SHOP, "r2"):
        pass
    child.communicate("")
    assert child.returncode == 0
    with control.leases.hold(SHOP, "r2") as lease:
        assert lease.token == 2
    control.close()


@pytest.mark.fault
def test_the_lease_of_a_killed_process_is_taken_over_at_once(control_url, child):
    control = ControlDatabase(control_url, SystemClock())
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a zombie
    with control.leases.hold(SHOP, "r2") as lease:
        assert lease.token == 2
        child.wait()
        lease.confirm()
    control.close()


@pytest.mark.fault
def test_the_lease_of_a_process_that_is_gone_is_taken_over_at_once(control_url, child):
    control = ControlDatabase(control_url, SystemClock())
    child.kill()
    child.wait()
    with control.leases.hold(SHOP, "r2") as lease:
        assert lease.token == 2
    control.close()


def test_a_process_number_that_was_given_out_again_is_not_the_holder(control):
    with control.leases.hold(SHOP, "r1") as old:
        change_row(control, process_started="1")  # this process has the number, and started at another time
        with control.leases.hold(SHOP, "r2") as new:
            assert new.token == 2
            with pytest.raises(LeaseLost):
                old.confirm()


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"host": "another"},
        {"boot_id": "another boot, or another space of process ids"},
        {"boot_id": None, "process_started": None},
    ],
)
def test_a_holder_that_cannot_be_seen_from_here_is_waited_for(control, clock, elsewhere):
    with control.leases.hold(SHOP, "r1", TTL):
        change_row(control, **{"pid": 2**22 + 1, "process_started": "1", **elsewhere})
        clock.advance(TTL - timedelta(microseconds=1))
        with pytest.raises(RunInProgress), control.leases.hold(SHOP, "r2"):
            pass
        clock.advance(timedelta(microseconds=1))
        with control.leases.hold(SHOP, "r2") as lease:
            assert lease.token == 2


def test_a_frozen_holder_loses_its_lease_when_it_expires(control, clock):
    with control.leases.hold(SHOP, "r1", TTL) as old:
        clock.advance(TTL)
        with control.leases.hold(SHOP, "r2", TTL) as new:
            with pytest.raises(LeaseLost, match=f"{SHOP}: the lease of run r1 was taken over.* publishes nothing more"):
                old.confirm()
            new.confirm()
        with pytest.raises(LeaseLost):  # r2 has released it, and it is not r1's again
            old.confirm()
    assert row(control).token == 2


def test_a_lease_that_a_wrong_clock_wrote_does_not_last_until_that_clock_says_so(control, clock):
    """Its holder is on a machine that nobody sees any more, and time was corrected since."""
    with control.leases.hold(SHOP, "r1", TTL):
        change_row(control, host="gone", boot_id="other", expires_at=clock.now() + timedelta(days=30))
        assert control.leases.holder(SHOP) is None
        with control.leases.hold(SHOP, "r2", TTL):
            assert control.leases.holder(SHOP) == "r2"


def test_the_end_of_an_old_holder_does_not_free_the_lease_of_the_new_one(control, clock):
    old = control.leases.hold(SHOP, "r1", TTL)
    old.__enter__()
    clock.advance(TTL)
    with control.leases.hold(SHOP, "r2", TTL) as new:
        old.__exit__(None, None, None)
        new.confirm()
        assert row(control).run_id == "r2"


def test_a_run_that_takes_its_own_lease_over_has_a_newer_token(control, clock):
    with control.leases.hold(SHOP, "r1", TTL) as old:
        clock.advance(TTL)
        with control.leases.hold(SHOP, "r1", TTL), pytest.raises(LeaseLost):
            old.confirm()


def test_a_confirmed_lease_lasts_a_whole_ttl_from_then(control, clock):
    with control.leases.hold(SHOP, "r1", TTL) as lease:
        clock.advance(TTL - timedelta(seconds=1))
        lease.confirm()
        assert row(control).expires_at == clock.now() + TTL
        clock.advance(TTL - timedelta(seconds=1))
        with pytest.raises(RunInProgress), control.leases.hold(SHOP, "r2"):
            pass


def test_the_heart_extends_the_lease(control, clock):
    with control.leases.hold(SHOP, "r1", timedelta(milliseconds=8)) as lease:
        clock.advance(timedelta(hours=1))
        deadline = time.monotonic() + 30
        while row(control).expires_at != clock.now() + lease.ttl:
            assert time.monotonic() < deadline


def test_a_heart_that_cannot_reach_the_database_tries_again(control, monkeypatch, caplog):
    beats, enough = [], Event()

    def confirm(lease):
        beats.append(lease)
        if len(beats) == 1:
            raise ControlError("the control database is away")
        enough.set()

    with control.leases.hold(SHOP, "r1", timedelta(milliseconds=8)):
        monkeypatch.setattr(Lease, "confirm", confirm)
        assert enough.wait(30)
    assert "could not be extended, trying again: the control database is away" in caplog.text


def test_a_log_that_cannot_be_written_does_not_stop_the_heart(control, monkeypatch):
    beats, enough = [], Event()

    def confirm(lease):
        beats.append(lease)
        if len(beats) == 1:
            raise ControlError("the control database is away")
        enough.set()

    monkeypatch.setattr("tidemark.control.leases.log.warning", broken)
    with control.leases.hold(SHOP, "r1", timedelta(milliseconds=8)):
        monkeypatch.setattr(Lease, "confirm", confirm)
        assert enough.wait(30)


def broken(*_):
    raise OSError("no space left on device")


def test_a_heart_that_lost_the_lease_stops(control, clock):
    ttl = timedelta(milliseconds=8)
    with control.leases.hold(SHOP, "r1", ttl):
        heart = next(thread for thread in threading.enumerate() if thread.name == f"lease of {SHOP}")
        change_row(control, token=99)
        heart.join(30)
        assert not heart.is_alive()


def test_a_lease_that_cannot_be_released_hides_no_error(control, monkeypatch, caplog):
    def away(lease):
        raise ControlError("the control database is away")

    monkeypatch.setattr(Lease, "release", away)
    with pytest.raises(ZeroDivisionError), control.leases.hold(SHOP, "r1"):
        raise ZeroDivisionError
    assert "could not be released" in caplog.text


def test_of_many_that_want_the_lease_at_once_one_gets_it(control):
    control.migrate()
    count, line, done = 6, Barrier(6), Barrier(6)

    def want(number):
        line.wait(60)
        try:
            with control.leases.hold(SHOP, f"r{number}"):
                done.wait(60)
            return "held"
        except RunInProgress:
            done.wait(60)
            return "refused"

    for _ in range(5):
        with ThreadPoolExecutor(count) as pool:
            assert sorted(pool.map(want, range(count))) == ["held"] + ["refused"] * (count - 1)


@pytest.mark.fast
def test_a_process_that_runs_is_not_dead_and_a_hidden_one_is_not_proven_so(monkeypatch, tmp_path):
    me = this_process()
    assert not proven_dead(me)
    monkeypatch.setattr("tidemark.control.process._state_and_start", lambda pid: None)
    assert not proven_dead(me)


@pytest.mark.fast
def test_without_proc_nothing_is_proven(monkeypatch, tmp_path):
    monkeypatch.setattr("tidemark.control.process.PROC", tmp_path)
    me = this_process()
    assert (me.boot_id, me.started) == (None, None)
    assert not proven_dead(me)
    assert not proven_dead(replace(me, pid=2**22 + 1))  # no process has such a number
