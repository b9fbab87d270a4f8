"""What a run of a stream would read now. The source is asked; nothing is written, there or here."""

from dataclasses import dataclass

from spark_code.connectors.plan import resumable_plan
from spark_code.connectors.planning import planned
from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.contract import CheckpointConnector
from tidemark.runs import Mode, Reason


@dataclass(frozen=True)
class StreamPreview:
    """`lower` and `upper` are cursors; None is open. Slices and records are None where only the run can say."""

    mode: str
    reason: str
    lower: str | None
    upper: str | None
    slices: int | None
    records: int | None


def previewed(subject: StreamSubject, *, full: bool = False) -> StreamPreview:
    """The window, its slices, and how many records the source has in it."""
    stream, connector, state = subject.stream, subject.connector, subject.state()
    resumed = None if full else resumable_plan(subject, state.version if state else None)
    whole = full or state is None
    reason = Reason.RESUMED if resumed else Reason.REQUESTED if full else Reason.NO_STATE if whole else Reason.STATE_FOUND
    if whole and isinstance(connector, CheckpointConnector) and connector.has_log:
        # To fix where a log begins makes a slot at the source.
        return StreamPreview(Mode.FULL, reason, None, None, None, None)
    plan = resumed or planned(subject, "plan", state, full=whole)
    if plan.full and not whole:
        reason = Reason.CURSOR_BACKWARDS
    window = plan.window(stream)
    counts = not isinstance(connector, CheckpointConnector) and not window.empty
    records = connector.count(stream, window) if counts else 0 if window.empty else None
    missing = [each for each in plan.slices if each.number not in (plan.finished(subject.platform.store) if resumed else ())]
    mode = Mode.FULL if plan.full else Mode.INCREMENTAL
    return StreamPreview(mode, reason, plan.lower, plan.upper, len(missing), records)
