"""Going back: first the mark, then the state, so that a crash in between leaves an old mark on a newer state."""

from datetime import datetime
from uuid import uuid4

from spark_code.catalog.marks import move_marker
from spark_code.catalog.recovery import Recovery
from spark_code.catalog.subject import CatalogSubject
from tidemark.catalog.marker import parse_marker
from tidemark.catalog.published import SYSTEM
from tidemark.control import RunRecord
from tidemark.errors import StateError, UsageError


def roll_back(subject: CatalogSubject, to: RunRecord) -> RunRecord:
    """Makes the state that a run left behind the published one again. Returns the ledger's row of the rollback."""
    if to.snapshot is None or to.marker is None:
        raise UsageError(f"{subject.connection.name}: run {to.run_id} is {to.status} and left no state to go back to.")
    if subject.lake.reader.has_snapshot(subject.layout.table, to.snapshot) is False:
        raise StateError(
            f"{subject.connection.name}: the state of run {to.run_id} is no longer kept: maintenance removed it. "
            "`tidemark history` lists the runs that can be gone back to."
        )
    run_id = str(uuid4())
    control = subject.control
    with control.leases.hold(subject.mark, run_id) as lease:
        Recovery(subject).recover(run_id)
        control.runs.begin(SYSTEM, subject.name, run_id, {**to.detail, "rolled back to": to.run_id})
        moment, why = parse_marker(to.marker), f"rollback to run {to.run_id}"
        move_marker(subject, subject.marker.read(), moment, to.snapshot, run_id, why)
        lease.confirm()
        subject.lake.roll_back(subject.layout.table, to.snapshot)
        lease.confirm()
        subject.mirror.bring_to(subject.layout.table, to.snapshot, to.run_id, None)
        return control.runs.finish(
            run_id,
            "rolled-back",
            mode=to.mode,
            reason=f"rolled back to {to.run_id}",
            snapshot=to.snapshot,
            marker=to.marker,
        )


def rewind_marker(subject: CatalogSubject, to: datetime) -> None:
    """Moves the marker back, never forward: a marker ahead of its state would skip changes."""
    published = subject.published()
    if published.snapshot is None or published.recorded_marker is None:
        raise UsageError(f"{subject.connection.name}: nothing is published yet, so there is no marker to rewind.")
    if to > published.recorded_marker:
        raise UsageError(
            f"{subject.connection.name}: a marker can only go back, and that moment is later than the published state."
        )
    run_id = str(uuid4())
    with subject.control.leases.hold(subject.mark, run_id):
        move_marker(subject, subject.marker.read(), to, published.snapshot, None, "rewound by hand")
