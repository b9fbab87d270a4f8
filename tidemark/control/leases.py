"""Leases: one run of a subject at a time; the loser is told at once, a dead holder holds nothing."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import Any

import sqlalchemy as sa

from tidemark.clock import Clock
from tidemark.control.process import ProcessIdentity, proven_dead, this_process
from tidemark.control.schema import leases
from tidemark.control.transactions import Transactions
from tidemark.errors import ControlError, LeaseLost, RunInProgress

TTL = timedelta(seconds=60)
LAST_BEAT_SECONDS = 5  # how long a release waits for a heartbeat that is under way

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lease:
    """The right to work on a subject; `token` grows with every holder, so an older one can be told from a newer."""

    subject: str
    run_id: str
    token: int
    ttl: timedelta
    _transactions: Transactions
    _clock: Clock

    def confirm(self) -> None:
        """Asks the database whether the lease is still ours, and makes it last a whole `ttl` from now."""
        if not self._amend({"expires_at": self._clock.now() + self.ttl}):
            raise LeaseLost(
                f"{self.subject}: the lease of run {self.run_id} was taken over, since it was not extended in "
                f"{self.ttl.total_seconds():g} seconds. This run publishes nothing more; start a new one."
            )

    def release(self) -> None:
        """Gives the lease back; one that was taken over meanwhile is left to its new holder."""
        self._amend({"run_id": None, "expires_at": None}, effect="lease_release")

    def _amend(self, values: dict[str, Any], effect: str | None = None) -> bool:
        # The token alone would do; a released lease keeps its token, so the run is asked for as well.
        ours = (leases.c.subject == self.subject, leases.c.token == self.token, leases.c.run_id == self.run_id)
        with self._transactions.write(effect) as connection:
            return connection.execute(sa.update(leases).where(*ours).values(**values)).rowcount == 1


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
        with self._transactions.read() as connection:
            row = connection.execute(sa.select(leases).where(leases.c.subject == subject)).one_or_none()
        return row.run_id if row is not None and _is_held(row, self._clock.now()) else None

    def _take(self, subject: str, run_id: str, ttl: timedelta) -> Lease:
        now = self._clock.now()
        me = this_process()
        with self._transactions.write("lease_take") as connection:
            row = _locked_row(connection, subject)
            if _is_held(row, now):
                raise _in_progress(row)
            connection.execute(
                sa.update(leases)
                .where(leases.c.subject == subject)
                .values(
                    token=row.token + 1,
                    run_id=run_id,
                    host=me.host,
                    boot_id=me.boot_id,
                    pid=me.pid,
                    process_started=me.started,
                    held_since=now,
                    expires_at=now + ttl,
                )
            )
        return Lease(subject, run_id, row.token + 1, ttl, self._transactions, self._clock)


def _locked_row(connection: sa.Connection, subject: str) -> Any:
    """The subject's row, made if need be, which nobody else can change until the transaction ends."""
    insert = sa.text("INSERT INTO tidemark_leases (subject, token) VALUES (:subject, 0) ON CONFLICT DO NOTHING")
    connection.execute(insert, {"subject": subject})
    return connection.execute(sa.select(leases).where(leases.c.subject == subject).with_for_update()).one()


def _is_held(row: Any, now: datetime) -> bool:
    # The clock decides only where the process cannot be seen: on another machine, or frozen on this one.
    return row.run_id is not None and row.expires_at > now and not proven_dead(_holder(row))


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
            log.warning("the lease of %s could not be extended, trying again: %s", lease.subject, error)


def _release(lease: Lease, heart: Thread) -> None:
    if heart.ident is not None:
        heart.join(LAST_BEAT_SECONDS)
    try:
        lease.release()
    except ControlError as error:
        # The work is done or has failed with an error of its own: an unreleased lease must not hide either.
        log.warning("the lease of %s could not be released, it ends by itself: %s", lease.subject, error)
