"""All checks against what is published: the last run's merge again, its diff, the mirror, and the marker."""

import hashlib
from dataclasses import replace

from spark_code.catalog.run import CatalogRun
from spark_code.catalog.state import StagedState
from spark_code.catalog.subject import CatalogSubject
from tidemark.catalog.manifest import damaged_files, read_manifest, stale_keys
from tidemark.checks import CheckResult
from tidemark.control import RunRecord
from tidemark.control.runs import COUNTING
from tidemark.errors import StateError
from tidemark.runs import Mode

LOOK_BACK = 50


def audit(subject: CatalogSubject, *, whole: bool = False) -> list[CheckResult]:
    """The verdicts; the whole of the mirror is always read, of the lake only what the last run touched unless asked."""
    published = subject.published()
    if published.snapshot is None:
        raise StateError(f"{subject.address}: nothing is published yet. `tidemark catalog run {subject.name}`.")
    results = [mirror_agrees(subject, published.snapshot), marker_not_ahead(subject)]
    last, staged = _last_merge(subject)
    if last is not None and staged is not None:
        run = CatalogRun(subject, last.run_id)
        if published.snapshot != staged.current:
            staged = replace(staged, snapshot=published.snapshot)  # what readers see, not what was staged once
        # Upkeep since then has put the same rows into other files: they are compared, not the files.
        rewritten = published.run_id != last.run_id and staged.snapshot is not None
        results += [*run.verify(staged, whole=whole or rewritten, rewritten=rewritten), run.verify_diff(staged)]
    elif last is not None and subject.is_of_another_version(last.run_id):
        words = (
            f"no, the last run is of another version of Tidemark: `tidemark catalog run {subject.name}`, then check again"
        )
        results.append(CheckResult("last_merge_is_comparable", True, words))
    return results


def _last_merge(subject: CatalogSubject) -> tuple[RunRecord | None, StagedState | None]:
    """The run whose merge made the published state, with what it staged; None after a rollback, which staged nothing."""
    for record in subject.control.runs.history(subject.address, limit=LOOK_BACK):
        if record.status in COUNTING and record.mode == Mode.ROLLBACK:
            return None, None
        if record.status in COUNTING and record.mode in (Mode.FULL, Mode.INCREMENTAL):
            return record, subject.find_staged(record.run_id)
    return None, None


def mirror_agrees(subject: CatalogSubject, snapshot: int) -> CheckResult:
    """Every file of the mirror is there, whole, and nothing else is; it shows the published snapshot."""
    name, layout, store = "mirror_agrees", subject.layout, subject.store
    manifest = read_manifest(store, layout)
    if manifest is None:
        return CheckResult(name, False, "there is no manifest: the next run rebuilds the mirror")
    faults = [f"damaged: {file.path}" for file in damaged_files(store, layout, manifest)]
    if not faults:
        for file in manifest.files:
            body = store.read(f"{layout.current_state}/{file.path}")
            if hashlib.sha256(body).hexdigest() != file.sha256:
                faults.append(f"altered: {file.path}")
    faults += [f"stray: {key}" for key in stale_keys(store, layout, manifest.files)]
    if manifest.snapshot_id != snapshot:
        faults.append("it shows another snapshot than the published one")
    rows = subject.lake.reader.rows(layout.table, snapshot)
    if sum(manifest.counts.values()) != rows:
        faults.append(f"{sum(manifest.counts.values())} entities, the state has {rows}")
    good = f"{len(manifest.files)} files, {rows} entities"
    return CheckResult(
        name, not faults, good if not faults else "; ".join(faults[:3]), {"faults": len(faults), "first": faults[:5]}
    )


def marker_not_ahead(subject: CatalogSubject) -> CheckResult:
    """marker.txt is there, readable, and not later than what is recorded for the published state."""
    marker, recorded = subject.marker.read(), subject.published().recorded_marker
    if marker.moment is None:
        why = "corrupt" if marker.corrupt else "missing"
        return CheckResult("marker_not_ahead", False, f"marker.txt is {why}: the next run will be full")
    ahead = recorded is None or marker.moment > recorded
    summary = "marker.txt is later than the published state" if ahead else "marker.txt belongs to the published state"
    return CheckResult("marker_not_ahead", not ahead, summary)
