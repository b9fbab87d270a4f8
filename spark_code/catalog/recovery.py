"""What a killed run left behind: a published one is finished, anything else is undone."""

from dataclasses import dataclass

from spark_code.catalog.marks import move_marker
from spark_code.catalog.subject import CatalogSubject
from tidemark.catalog.manifest import damaged_files, read_manifest
from tidemark.catalog.published import SYSTEM, Published
from tidemark.control import RunRecord
from tidemark.errors import UnknownRun
from tidemark.faults import fault_point
from tidemark.lake import branch_of


@dataclass(frozen=True)
class Recovery:
    """Only the holder of the connection's lease may use it."""

    subject: CatalogSubject

    def recover(self, run_id: str) -> None:
        """Brings the connection back to a state that a run may start from. Cheap when there is nothing to do."""
        subject = self.subject
        subject.store.sweep()
        published = subject.published()
        self._finish_published(published)
        killed = subject.control.runs.abandon_running(SYSTEM, subject.name, except_run_id=run_id)
        for left in killed:
            self.undo(left)
        if killed:
            subject.lake.sweep(subject.layout.table, subject.store)
        self._repair_mirror(published)

    def _finish_published(self, published: Published) -> None:
        """A run that published and died before its marker moved is completed: mirror, mark, marker, ledger."""
        subject = self.subject
        record = self._running(published.run_id)
        if record is None or published.snapshot is None or published.recorded_marker is None:
            return
        manifest = subject.mirror.bring_to(subject.layout.table, published.snapshot, record.run_id, None)
        marker = subject.marker.read()
        if marker.moment is None or marker.moment < published.recorded_marker:
            why = "finished after an interruption"
            move_marker(subject, marker, published.recorded_marker, published.snapshot, record.run_id, why)
        plan = subject.load_plan(record.run_id)
        detail = {
            "labels": plan.counts,
            "entities": manifest.counts,
            "identity": plan.identity,
            "unlisted": plan.unlisted,
            "scope": plan.scope,
            "finished after an interruption": True,
        }
        subject.control.runs.finish(record.run_id, "published", snapshot=published.snapshot, detail=detail)
        self.tidy(record.run_id)

    def _running(self, run_id: str | None) -> RunRecord | None:
        if run_id is None:
            return None
        try:
            record = self.subject.control.runs.find(SYSTEM, self.subject.name, run_id)
        except UnknownRun:
            return None
        return record if record.status == "running" else None

    def _repair_mirror(self, published: Published) -> None:
        """The mirror is made anew from the published state when its manifest or one of its files is not as it should be."""
        subject = self.subject
        if published.snapshot is None:
            return
        manifest = read_manifest(subject.store, subject.layout)
        if (
            manifest
            and manifest.snapshot_id == published.snapshot
            and not damaged_files(subject.store, subject.layout, manifest)
        ):
            return
        subject.mirror.bring_to(subject.layout.table, published.snapshot, published.labels_of, None)

    def undo(self, run_id: str) -> None:
        """Removes what an unpublished run left: its branch, its objects, and its files in the lake."""
        fault_point("recovery.before_undo")
        table = self.subject.layout.table
        if branch_of(run_id) in self.subject.lake.reader.branches(table):
            self.subject.lake.discard(table, branch_of(run_id))
        self.subject.store.delete_prefix(self.subject.layout.run(run_id) + "/")

    def tidy(self, run_id: str) -> None:
        """After a publication: no branch, no extracted data of other runs, no objects of failed ones."""
        subject = self.subject
        table = subject.layout.table
        for branch in subject.lake.reader.branches(table):
            subject.lake.discard(table, branch)
        # Published diffs are an audit trail and stay; what earlier runs extracted, and all of failed ones, goes.
        for record in subject.control.runs.history(SYSTEM, subject.name):
            if record.status in ("failed", "abandoned"):
                subject.store.delete_prefix(subject.layout.run(record.run_id) + "/")
            elif record.status in ("published", "unchanged") and record.run_id != run_id:
                subject.store.delete_prefix(subject.layout.extracted(record.run_id) + "/")
                return
