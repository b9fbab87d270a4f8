"""How every subject is doing, from the control database alone: a few queries, however many subjects there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from tidemark.config.cron import last_tick, next_tick
from tidemark.control import ControlDatabase, RunRecord
from tidemark.findings import Finding
from tidemark.runs.system import Configured

# How late a run may begin and end before its subject is overdue.
GRACE = timedelta(minutes=15)


class State(StrEnum):
    """In one word."""

    OK = "ok"
    RUNNING = "running"
    FAILED = "failed"
    OVERDUE = "overdue"
    # The ledger says running, and no living process holds the lease. The next run recovers it.
    STUCK = "stuck"
    NEW = "new"
    # Its file, or its entry in the configuration, is wrong.
    BROKEN = "broken"


# What makes `tidemark status` end with exit code 1.
BAD = (State.FAILED, State.OVERDUE, State.STUCK, State.BROKEN)


@dataclass(frozen=True)
class SubjectStatus:
    """How one subject is doing."""

    subject: str
    state: State
    # The newest run; None if there was none.
    run: RunRecord | None
    marked_at: datetime | None
    schedule: str | None
    next_due: datetime | None
    # Since when a run has been due that did not come.
    due_since: datetime | None
    # What is wrong with its file.
    findings: tuple[Finding, ...] = ()
    # A wrong clock dated the newest run ahead.
    dated_ahead: bool = False

    @property
    def error(self) -> str | None:
        """Why it needs somebody, in short."""
        if self.findings:
            return "\n".join(map(str, self.findings))
        if self.state is State.FAILED:
            return (self.run.error if self.run else None) or "failed without an error"
        if self.state is State.STUCK and self.run:
            return f"the process of run {self.run.run_id} is gone. The next run recovers automatically."
        if self.state is State.OVERDUE and self.due_since and self.run and self.run.status == "running":
            began = f"{self.run.started_at:%Y-%m-%d %H:%M}"
            return f"run {self.run.run_id} has been under way since {began} UTC, and a later one is due. Is it stuck?"
        if self.state is State.OVERDUE and self.due_since:
            if self.dated_ahead and self.run:
                return (
                    f"run {self.run.run_id} ended at {self.run.finished_at:%Y-%m-%d %H:%M} UTC, which is still to come: "
                    "a clock was wrong. The next run that counts clears this."
                )
            return f"no run that counts since {self.due_since:%Y-%m-%d %H:%M} UTC. Is the scheduler running?"
        return None


def statuses(
    control: ControlDatabase, subjects: Sequence[Configured], tenants: Sequence[str], now: datetime
) -> list[SubjectStatus]:
    """The status of these subjects, in their order."""
    held = {each.run_id for each in control.leases.held()}
    runs = {each.newest.subject: each for each in control.runs.newest()}
    # Looked at before and after: a run that begins or ends meanwhile is not stuck.
    held |= {each.run_id for each in control.leases.held()}
    marked = {each.subject: each.moved_at for each in control.marks.moments(tenants)}
    found = []
    for each in subjects:
        of_subject = runs.get(each.address)
        newest = of_subject.newest if of_subject else None
        due = _due_since(each, of_subject.counting if of_subject else None, now)
        found.append(
            SubjectStatus(
                each.address,
                State.BROKEN if each.broken else _state(newest, due, alive=newest is not None and newest.run_id in held),
                newest,
                marked.get(each.address),
                each.schedule,
                next_tick(each.schedule, now) if each.schedule else None,
                due,
                each.broken,
                newest is not None and _is_to_come(newest.finished_at, now),
            )
        )
    return found


def _is_to_come(moment: datetime | None, now: datetime) -> bool:
    """Clocks of hosts differ a little."""
    return moment is not None and moment > now + GRACE


def _due_since(configured: Configured, counting: RunRecord | None, now: datetime) -> datetime | None:
    """The tick that no run answered, once its grace is over. Before its file was written a subject may not have existed.

    A run that ended in the future was dated by a wrong clock: it would answer every tick until then.
    """
    if configured.schedule is None:
        return None
    tick = last_tick(configured.schedule, now - GRACE)
    answered = counting.finished_at if counting else _written_at(configured.file)
    if answered is None or (answered >= tick and not _is_to_come(answered, now)):
        return None
    return tick


def _written_at(file: str | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(Path(file).stat().st_mtime, UTC) if file else None
    except OSError:
        return None


def _state(newest: RunRecord | None, due: datetime | None, *, alive: bool) -> State:
    if newest is None:
        return State.OVERDUE if due else State.NEW
    if newest.status == "running":
        if not alive:
            return State.STUCK
        # One that began before the tick it should have answered, and still has not, may wait for ever.
        return State.OVERDUE if due and newest.started_at < due else State.RUNNING
    if newest.status in ("failed", "abandoned"):
        return State.FAILED
    return State.OVERDUE if due else State.OK
