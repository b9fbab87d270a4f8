"""Bronze back to what a run left: the state first, then the table. What came later is read again by the next run."""

from typing import Any
from uuid import uuid4

from spark_code.connectors.plan import EMITTED_AT
from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.contract import CheckpointConnector
from tidemark.control import RunRecord, actor
from tidemark.errors import UsageError
from tidemark.faults import fault_point
from tidemark.runs import Mode, Reason, Run
from tidemark.runs.rollback import check_target, roll_back, target_of, version_left_by


def roll_back_stream(subject: StreamSubject, to: RunRecord, reason: str) -> RunRecord:
    """Returns the ledger's row of the rollback."""
    wanted = target_of(to)
    refuse_logs(subject)
    with Run(subject, str(uuid4())) as run:
        state_version = subject.marks.version(subject.address)
        table = subject.platform.reader.existing(subject.place.table)
        head = table.current_snapshot()
        run.decide(Mode.ROLLBACK, Reason.REQUESTED, f"to run {to.run_id}", base_snapshot=head.snapshot_id if head else None)
        with run.step("verify"):
            check_target(run, table, wanted)
        fault_point("rollback.before_state")
        run.confirm()
        # A crash in between leaves an old state on a newer table, which is safe: Bronze takes nothing twice.
        with run.step("state"):
            rewind_state(subject, to, run.run_id, reason, expected=state_version)
        fault_point("rollback.before_publish")
        with run.step("publish"):
            # What lands later must count as emitted later than all that ever did.
            said = head.summary.additional_properties if head and head.summary else {}
            emitted = {EMITTED_AT: said[EMITTED_AT]} if EMITTED_AT in said else {}
            snapshot = roll_back(run, table, wanted, summary=emitted)
        detail = {"rolled back to": to.run_id, "writes": [f"lake.{subject.place.table}"]}
        return run.finish("published", snapshot=snapshot, detail=detail)


def refuse_logs(subject: StreamSubject) -> None:
    connector = subject.connector
    if isinstance(connector, CheckpointConnector) and connector.has_log:
        raise UsageError(
            f"{subject.address}: a stream of a log cannot go back, since its source may drop what was read. Use "
            f"`tidemark stream run {subject.name} --full`, which reads everything as it is now."
        )


def rewind_state(subject: StreamSubject, to: RunRecord, run_id: str, reason: str, *, expected: int) -> None:
    """The state as the run left it; none, if there was none.

    `expected` is its version when the work began: a process that was stopped and woken takes nothing back.
    """
    marks, version = subject.marks, version_left_by(subject.marks, to)
    said: dict[str, Any] = {"expected_version": expected, "run_id": run_id, "actor": actor(), "reason": reason}
    if version is not None:
        marks.rewind(subject.address, to_version=version, **said)
    elif marks.get(subject.address) is not None:
        marks.reset(subject.address, **said)
