"""What killed runs left behind. One decision, the same in every system: did it publish? Then it is finished, else undone."""

from collections.abc import Callable

from tidemark.control import RunRecord
from tidemark.errors import RunAbandoned
from tidemark.faults import fault_point
from tidemark.runs.events import emit
from tidemark.runs.subject import Confirm, Subject, Visible
from tidemark.runs.summary import run_ended

# Called for every run that turned out to be dead, so that whoever started it can close it too (Dagster).
DeadRun = Callable[[RunRecord], None]


def recover(subject: Subject, run_id: str, confirm: Confirm, on_dead: DeadRun | None = None) -> list[RunRecord]:
    """Brings the subject to a state that a run may start from. Only for the holder of its lease. Returns the dead runs.

    A recovery may be stopped and woken as well: `confirm` is asked before everything that it changes.
    """
    # Its own id among them, if it was begun before: the lease is new, so that process is dead, and its notes are not ours.
    left = subject.control.runs.running(subject.address)
    if left:
        seen = subject.visible()
        for dead in left:
            fault_point("recovery.before_run")
            confirm()
            settled = _settle(subject, dead, seen, run_id, confirm)
            fault_point("recovery.after_run")
            # Its own process could not: whoever heard that it started hears that it ended.
            emit(run_ended(settled))
            if on_dead:
                on_dead(dead)
    confirm()
    subject.repair(confirm)
    return left


def _settle(subject: Subject, dead: RunRecord, seen: Visible | None, by: str, confirm: Confirm) -> RunRecord:
    runs = subject.control.runs
    if not _published(dead, seen):
        # It may only be asleep, and wake up right now: first it is kept from publishing, then asked once more.
        subject.fence(dead)
        seen = subject.visible()
    if seen is not None and _published(dead, seen):
        # Readers have seen what it wrote: it counts, and what it could not finish is finished for it.
        detail = {**subject.roll_forward(dead, seen, confirm), "finished by run": by}
        if dead.error:
            # What it said before it ended must not be lost with its being finished: a failed check of upkeep, say.
            detail["ended with"] = dead.error
        return runs.finish(dead.run_id, "published", snapshot=seen.snapshot, error=None, detail=detail)
    concluded = subject.conclude(dead, seen, confirm)
    if concluded is not None:
        # It had nothing to publish and has moved the mark, which comes last: that counts too.
        detail, snapshot = {**concluded, "finished by run": by}, seen.snapshot if seen else None
        return runs.finish(dead.run_id, "unchanged", snapshot=snapshot, error=None, detail=detail)
    confirm()
    subject.undo(dead)
    error = RunAbandoned(
        f"{subject.address}: run {dead.run_id} ended without a word before it published, or what it published was taken "
        "back: its process was killed, or its machine stopped. Nothing of it is visible; a later run has removed what it "
        "left."
    )
    return runs.finish(dead.run_id, "abandoned", error=dead.error or error)


def _published(dead: RunRecord, seen: Visible | None) -> bool:
    return seen is not None and seen.run_id == dead.run_id
