"""Leases: one run of a subject at a time; the loser knows at once, a dead holder holds nothing."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import Any

import sqlalchemy as sa

from tidemark.clock import Clock, SystemClock
from tidemark.control.process import ProcessIdentity, proven_dead, seen_from_here, this_process
from tidemark.control.schema import Moment, leases
from tidemark.control.transactions import Transactions, insert_missing
from tidemark.errors import ControlError, LeaseLost, RunInProgress

TTL = timedelta(seconds=60)
LONGEST = 2 * TTL  # a little more than a lease lasts: clocks of hosts differ by seconds
LAST_BEAT_SECONDS = 5  # how long a release waits for a heartbeat that is under way

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lease:
    """The right to work on a subject; `token` grows with every holder, so an older one differs from a newer."""

    subject: str
    run_id: str
    token: int
    ttl: timedelta
    _transactions: Transactions
    _clock: Clock

    def confirm(self) -> None:
        """Asks the database whether the lease is still ours, and makes it last a whole `ttl` from now."""
        if not self._amend(lambda connection: {"expires_at": _now(connection, self._clock) + self.ttl}):
            raise LeaseLost(
                f"{self.subject}: the lease of run {self.run_id} was taken over, since it was not extended in "
                f"{self.ttl.total_seconds():g} seconds. This run publishes nothing more; start a new one."
            )

    def release(self) -> None:
        """Gives the lease back; one that was taken over meanwhile is left to its new holder."""
        self._amend(lambda _connection: {"run_id": None, "expires_at": None}, effect="lease_release")

    def _amend(self, values: Callable[[sa.Connection], dict[str, Any]], effect: str | None = None) -> bool:
        # The token alone would do; a released lease keeps its token, so the run is compared as well.
        ours = (leases.c.subject == self.subject, leases.c.token == self.token, leases.c.run_id == self.run_id)
        return self._transactions.write(
            lambda connection, _repeated: (
                connection.execute(sa.update(leases).where(*ours).values(**values(connection))).rowcount == 1
            ),
            effect,
        )


@dataclass(frozen=True)
class HeldLease:
    """Who holds the lease of a subject."""

    subject: str
    run_id: str
    host: str
    pid: int
    since: datetime
    expires: datetime


class Leases:
    """Hands out one lease a subject."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    @contextmanager
    def hold(self, subject: str, run_id: str, ttl: timedelta = TTL) -> Iterator[Lease]:
        """Holds the lease while the block runs; `RunInProgress` at once if a living run has it."""
        lease = self._take(subject, run_id, ttl)
        ended = Event()
        heart = Thread(target=_beat, args=(lease, ended), name=f"lease of {subject}", daemon=True)
        try:
            heart.start()
            yield lease
        finally:
            ended.set()
            _release(lease, heart)

    def holder(self, subject: str) -> str | None:
        """The run that holds the lease now, as far as can be seen; it may be free or taken a moment later."""
        return next((lease.run_id for lease in self._held(leases.c.subject == subject)), None)

    def held(self) -> list[HeldLease]:
        """Every lease that is held now, sorted by subject."""
        return sorted(self._held(leases.c.run_id.is_not(None)), key=lambda lease: lease.subject)

    def _held(self, condition: sa.ColumnElement[bool]) -> list[HeldLease]:
        def look(connection: sa.Connection) -> list[HeldLease]:
            now = _now(connection, self._clock)
            rows = connection.execute(sa.select(leases).where(condition))
            return [
                HeldLease(row.subject, row.run_id, row.host, row.pid, row.held_since, row.expires_at)
                for row in rows
                if _is_held(row, now)
            ]

        return self._transactions.read(look)

    def _take(self, subject: str, run_id: str, ttl: timedelta) -> Lease:
        me = this_process()

        def take(connection: sa.Connection, repeated: bool) -> int:
            row = _locked_row(connection, subject)
            now = _now(connection, self._clock)
            if _is_held(row, now):
                if repeated and (row.run_id, _holder(row)) == (run_id, me):
                    return int(row.token)  # the commit that got no answer was made
                raise _in_progress(row)
            holder = {"host": me.host, "boot_id": me.boot_id, "pid": me.pid, "process_started": me.started}
            taken = {"token": row.token + 1, "run_id": run_id, "held_since": now, "expires_at": now + ttl, **holder}
            connection.execute(sa.update(leases).where(leases.c.subject == subject).values(**taken))
            return int(row.token) + 1

        token = self._transactions.write(take, "lease_take")
        return Lease(subject, run_id, token, ttl, self._transactions, self._clock)


def _now(connection: sa.Connection, clock: Clock) -> datetime:
    """The database's own time, so that hosts whose clocks differ agree on when a lease ends.

    SQLite has no clock but the host's, and a test that brings a clock means that one.
    """
    if connection.dialect.name == "postgresql" and isinstance(clock, SystemClock):
        return connection.execute(sa.select(sa.func.clock_timestamp(type_=Moment))).scalar_one()
    return clock.now()


def _locked_row(connection: sa.Connection, subject: str) -> Any:
    """The subject's row, made if need be, which nobody else can change until the transaction ends."""
    insert_missing(connection, leases, {"subject": subject, "token": 0})
    return connection.execute(sa.select(leases).where(leases.c.subject == subject).with_for_update()).one()


def _is_held(row: Any, now: datetime) -> bool:
    # The clock decides only where the process cannot be seen: on another machine, or frozen on this one.
    if row.run_id is None or row.expires_at <= now:
        return False
    if seen_from_here(_holder(row)):
        return not proven_dead(_holder(row))
    # An end that lies further ahead than any lease was written by a clock that was wrong; a living holder corrects it with
    # its next beat.
    return bool(row.expires_at <= now + LONGEST)


def _holder(row: Any) -> ProcessIdentity:
    return ProcessIdentity(row.host, row.boot_id, row.pid, row.process_started)


def _in_progress(row: Any) -> RunInProgress:
    return RunInProgress(
        f"{row.subject}: run {row.run_id} is in progress on {row.host} (pid {row.pid}) since "
        f"{row.held_since:%Y-%m-%d %H:%M:%S} UTC. Nothing was changed. Wait until it ends, or end that process; "
        f"if its machine is gone, the lease is free from {row.expires_at:%Y-%m-%d %H:%M:%S} UTC on."
    )


def _beat(lease: Lease, ended: Event) -> None:
    while not ended.wait(lease.ttl.total_seconds() / 4):
        try:
            lease.confirm()
        except LeaseLost:
            return  # the run learns of it when it confirms before its next effect
        except ControlError as error:
            with suppress(Exception):  # a log that cannot be written must not stop the heart
                log.warning("the lease of %s could not be extended, trying again: %s", lease.subject, error)


def _release(lease: Lease, heart: Thread) -> None:
    if heart.ident is not None:
        heart.join(LAST_BEAT_SECONDS)
    try:
        lease.release()
    except ControlError as error:
        # The work is done or has failed with an error of its own: an unreleased lease must not hide either.
        log.warning("the lease of %s could not be released, it ends by itself: %s", lease.subject, error)
