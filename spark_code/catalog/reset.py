"""Taking the marker away: the next run reads everything. The published state stays what it is."""

from uuid import uuid4

from spark_code.catalog.subject import CatalogSubject
from tidemark.control import RunRecord, actor
from tidemark.errors import LostRace, ObjectChanged, UsageError
from tidemark.faults import fault_point
from tidemark.runs import Mode, Reason, Run


def reset_marker(subject: CatalogSubject, reason: str) -> RunRecord:
    """Deletes marker.txt and takes the mark away, with an audit row."""
    with Run(subject, str(uuid4())) as run:
        found, published = subject.marker.read(), subject.published()
        marks = subject.control.marks
        has_mark, version = marks.get(subject.address) is not None, marks.version(subject.address)
        if found.etag is None and not has_mark:
            raise UsageError(f"{subject.address} has no marker: there is nothing to reset, the next run is full anyway.")
        run.decide(Mode.REWIND, Reason.REQUESTED, "reset", base_snapshot=published.snapshot)
        with run.step("marker"):
            # The object first: a mark without marker.txt makes the next run full, and the other way round would not.
            if found.etag is not None:
                run.confirm()
                try:
                    subject.store.delete_if_unchanged(subject.layout.marker, found.etag)
                except ObjectChanged as lost:
                    raise LostRace(
                        f"{subject.layout.marker} was changed by somebody else meanwhile. Nothing was reset; try again."
                    ) from lost
            fault_point("marks.before_reset")
            if has_mark:
                said = {"run_id": run.run_id, "actor": actor(), "reason": reason}
                marks.reset(subject.address, expected_version=version, **said)
        # What the next run must know of the last one: what it could see, and whose labels the state has.
        last = published.last_run.detail if published.last_run else {}
        kept = {key: value for key, value in last.items() if key not in ("labels", "reason", "rows", "seconds")}
        return run.finish("unchanged", snapshot=published.snapshot, detail=kept)
