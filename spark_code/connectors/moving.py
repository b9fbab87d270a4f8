"""The state moves last: to the greatest cursor that landed, or to the connector's own checkpoint."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from spark_code.connectors.plan import IngestPlan
from tidemark.connectors.contract import CheckpointConnector
from tidemark.control import actor
from tidemark.errors import SourceError

if TYPE_CHECKING:
    from spark_code.connectors.subject import StreamSubject


def move_state(
    subject: StreamSubject, run_id: str, plan: IngestPlan, snapshot: int | None, files: list[str], reason: str
) -> str | None:
    """Moves the state to where the run got. Returns where it is."""
    stream = subject.stream
    if stream.cursor_field is None:
        return None
    before = subject.state()
    value = next_value(subject, plan, snapshot, files, before.value if before else None)
    if value is not None and (before is None or value != before.value):
        subject.marks.move(
            subject.address,
            plan.state_version,
            value,
            field=stream.cursor_field,
            snapshot=snapshot,
            run_id=run_id,
            actor=actor(),
            reason=reason,
        )
    return value


def next_value(
    subject: StreamSubject, plan: IngestPlan, snapshot: int | None, files: list[str], before: str | None
) -> str | None:
    """The greatest cursor that landed, or the connector's own checkpoint.

    A cursor goes back only with a source that went back, when all of that was read: ahead of its source it would
    skip what comes next.
    """
    stream, connector = subject.stream, subject.connector
    if isinstance(connector, CheckpointConnector):
        return connector.advanced(stream, None if plan.full else before, plan.slices)
    known = None if before is None else stream.parse_cursor(before)
    landed = plan.greatest_landed(subject, snapshot, files)
    if landed is None and was_moved_back(subject):
        # All that was read had landed before: the state goes on to where that ends, or it would be read for ever.
        landed = plan.greatest_before(subject)
    value = max((each for each in (known, landed) if each is not None), default=None)
    upper = plan.window(stream).upper
    if plan.full and known is not None and upper is not None and upper < known:
        value = upper
    return None if value is None else before if value == known else str(value)


def was_moved_back(subject: StreamSubject) -> bool:
    """Whether a person moved the state, or took it away, since the last run did."""
    moves = subject.marks.audit(subject.address, limit=1)
    return not moves or moves[0].kind != "commit"


def acknowledge(subject: StreamSubject, value: str | None) -> None:
    """Reports to the source how far it was read. If that fails, the next run does it again."""
    if value is not None and isinstance(subject.connector, CheckpointConnector):
        with suppress(SourceError):
            subject.connector.acknowledge(subject.stream, value)
