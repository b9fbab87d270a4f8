"""Upkeep of a connection's table: compact, forget, clean. Never what a running stage or the kept history needs."""

from typing import Any
from uuid import uuid4

from spark_code.catalog.marks import move_marker
from spark_code.catalog.recovery import Recovery
from spark_code.catalog.subject import CatalogSubject
from tidemark.catalog.manifest import read_manifest
from tidemark.catalog.marker import format_marker
from tidemark.catalog.published import SYSTEM
from tidemark.control import RunRecord
from tidemark.lake import MARKER, RUN_ID


def maintain(subject: CatalogSubject, *, keep_runs: int = 50) -> dict[str, Any]:
    """Under the connection's lease, so that no run stages meanwhile. Returns what was done, in numbers."""
    run_id = f"maintain-{uuid4()}"
    with subject.control.leases.hold(subject.mark, run_id) as lease:
        Recovery(subject).recover(run_id)
        published = subject.published()
        if published.snapshot is None:
            return {"nothing published": True}
        facts = subject.lake.compact(subject.layout.table, "kind, unit_key, ordinal", summary_of(subject))
        lease.confirm()
        follow(subject, published.snapshot)
        facts |= subject.lake.forget(subject.layout.table, kept_snapshots(subject, keep_runs))
        for old in kept_runs(subject, None)[keep_runs:]:
            subject.store.delete_prefix(subject.layout.run(old.run_id) + "/")
        facts["unreferenced files removed"] = subject.lake.sweep(subject.layout.table, subject.store)
        facts["temporary files removed"] = subject.store.sweep()
        return facts


def summary_of(subject: CatalogSubject) -> dict[str, str]:
    """A compacted snapshot is the same state: it keeps the run and the marker of the one it was made from."""
    published = subject.published()
    marker = {MARKER: format_marker(published.recorded_marker)} if published.recorded_marker else {}
    return {RUN_ID: published.run_id, **marker} if published.run_id else dict(marker)


def follow(subject: CatalogSubject, before: int) -> None:
    """Mark and mirror follow to the compacted snapshot, which holds the same entities."""
    now = subject.published()
    if now.snapshot is None or now.snapshot == before:
        return
    marker = subject.marker.read()
    if marker.moment is not None:
        move_marker(subject, marker, marker.moment, now.snapshot, None, "maintenance")
    manifest = read_manifest(subject.store, subject.layout)
    if manifest and manifest.snapshot_id == before:
        moved = manifest.model_copy(update={"snapshot_id": now.snapshot})
        subject.store.put(subject.layout.manifest, (moved.model_dump_json(indent=2) + "\n").encode())


def kept_runs(subject: CatalogSubject, number: int | None) -> list[RunRecord]:
    """The runs that left a state behind, newest first."""
    return [run for run in subject.control.runs.history(SYSTEM, subject.name) if run.snapshot is not None][:number]


def kept_snapshots(subject: CatalogSubject, keep_runs: int) -> set[int]:
    """Snapshots that the last runs began from or left behind, and every branch."""
    reader, table = subject.lake.reader, subject.layout.table
    runs = kept_runs(subject, keep_runs)
    kept = {snapshot for run in runs for snapshot in (run.base_snapshot, run.snapshot) if snapshot is not None}
    current = reader.published(table)
    return kept | set(reader.branches(table).values()) | ({current.snapshot_id} if current else set())
