"""Upkeep of a stream's tables: compact, forget, clean. Never what a run that was stopped has left for the next one."""

from typing import Any
from uuid import uuid4

from spark_code.connectors.run import IngestRun
from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.place import SYSTEM

ORDER = "emitted_at"


def maintain(subject: StreamSubject, *, keep_runs: int = 50) -> dict[str, Any]:
    """Under the stream's lease, so that no run stages meanwhile. Returns what was done, in numbers."""
    platform, place, run_id = subject.platform, subject.place, f"maintain-{uuid4()}"
    done: dict[str, Any] = {}
    with platform.control.leases.hold(place.lease, run_id) as lease:
        IngestRun(subject, run_id).recover()
        if any(platform.store.list(f"{place.root}/runs/")):
            # Its plan names files and snapshots; once they were rewritten, no run could go on from it.
            return {"left alone, a stopped run waits": True}
        for what, table in (("bronze", place.table), ("quarantine", place.quarantine)):
            published = platform.lake.reader.published(table)
            if published is None:
                continue
            summary = published.summary.additional_properties if published.summary else {}
            ours = {key: value for key, value in summary.items() if key.startswith("tidemark.")}
            facts = platform.lake.compact(table, ORDER, ours)
            lease.confirm()
            facts |= platform.lake.forget(table, kept_snapshots(subject, table, keep_runs))
            facts["unreferenced files removed"] = platform.lake.sweep(table, platform.store)
            done |= {f"{what}: {fact}": number for fact, number in facts.items()}
    return done or {"nothing published": True}


def kept_snapshots(subject: StreamSubject, table: str, keep_runs: int) -> set[int]:
    """Snapshots that the last runs left behind, every branch, and what is published."""
    reader, runs = subject.platform.lake.reader, subject.platform.control.runs
    left = [run.snapshot for run in runs.history(SYSTEM, subject.name) if run.snapshot is not None]
    published = reader.published(table)
    current = {published.snapshot_id} if published else set()
    if table == subject.place.quarantine:
        return current | set(reader.branches(table).values())
    return set(dict.fromkeys(left[:keep_runs])) | set(reader.branches(table).values()) | current
