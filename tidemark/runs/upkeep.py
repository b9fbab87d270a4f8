"""Upkeep, written once: compact on a branch, compare, publish like any run, then forget old snapshots and remove strays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol
from uuid import uuid4

from tidemark.checks import CheckResult
from tidemark.control import RunRecord
from tidemark.lake import RUN_ID
from tidemark.lake_names import SHADOW
from tidemark.lake_sweep import MINIMUM_AGE, sweep, why_distrusted
from tidemark.platform import Platform
from tidemark.publication import discard, drop_dangling_deletes, publish_branch, staged_snapshots, summary_of, visible
from tidemark.runs.reasons import Mode, Reason
from tidemark.runs.run import Run
from tidemark.runs.subject import Confirm, Subject

KEEP_RUNS = 50

# A temporary file is locked while its writer lives, but a shared file system may lose locks.
TEMPORARY_AGE = timedelta(days=1)
OURS = "tidemark."

# Compares all that is published with what it was made from.
Audit = Callable[[Any], Sequence[CheckResult]]


@dataclass(frozen=True)
class TableUpkeep:
    """How one table of a subject is kept in order."""

    table: str
    # What rows are sorted by when files are rewritten; None: the files stay as they are.
    order: str | None
    # Snapshots that must stay readable.
    kept: frozenset[int]


class UpkeepSubject(Subject, Protocol):
    """A subject that can be kept in order."""

    @property
    def platform(self) -> Platform: ...

    def busy(self) -> str | None:
        """Why its files must be left alone for now: a stopped run waits to go on from them."""
        ...

    def upkeep(self, keep_runs: int) -> Sequence[TableUpkeep]:
        """Its tables, each with what the last runs still need."""
        ...

    def record_now(self) -> Mapping[str, Any]:
        """What the publication of the same rows in other files says about them."""
        ...

    def compacted(self, before: int, after: int, confirm: Confirm) -> None:
        """Everything that names the published snapshot follows to the compacted one."""
        ...

    def forget(self, keep_runs: int) -> int:
        """Removes objects of runs that are not to be kept; returns how many."""
        ...


class Compactor(Protocol):
    """What upkeep needs an engine for."""

    def compact(self, table: str, run_id: str, order: str, summary: Mapping[str, str]) -> dict[str, int]:
        """Rewrites small files and applies deletes, on the branch of the run."""
        ...

    def expire(self, table: str, kept: frozenset[int]) -> int:
        """Forgets all other snapshots, with the files that only they refer to."""
        ...


def keep_up(
    subject: UpkeepSubject,
    compactor: Compactor,
    *,
    run_id: str | None = None,
    keep_runs: int = KEEP_RUNS,
    older_than: timedelta = MINIMUM_AGE,
    audit: Audit | None = None,
    **options: Any,
) -> RunRecord:
    """Upkeep of one subject, as a run: nobody else works on it meanwhile, and it is in the history.

    What fails its audit is left as it is: compacting and expiring could remove what it is to be repaired from.
    """
    with Run(subject, run_id or f"upkeep-{uuid4()}", **options) as run:
        run.decide(Mode.UPKEEP, Reason.REQUESTED)
        audited = {"checks passed": _audited(run, audit)} if audit else {}
        busy = subject.busy()
        if busy:
            return run.finish("unchanged", detail={**audited, "left alone": busy}, tidy=False)
        facts: dict[str, Any] = {}
        for each in subject.upkeep(keep_runs):
            facts[each.table] = _kept(run, compactor, each, older_than)
        with run.step("forget"):
            run.confirm()
            objects = subject.forget(keep_runs)
            temporary = subject.platform.store.sweep()
            runs, values = _forgotten(subject, keep_runs)
        detail = {**audited, "upkeep": facts, "objects removed": objects, "temporary files removed": temporary}
        detail |= {"runs removed": runs, "values of the mark removed": values}
        return run.finish("published" if run.published else "unchanged", detail=detail)


def _audited(run: Run[UpkeepSubject], audit: Audit) -> int:
    """After recovery: what a killed run left half done is no fault of what is published."""
    with run.step("audit"):
        results = audit(run.subject)
        run.require(results, "What is published fails its checks, and was left alone.")
    return len(results)


def _forgotten(subject: UpkeepSubject, keep_runs: int) -> tuple[int, int]:
    """Rows of the ledger and values of the mark that `retention` does not keep, and that nobody can go back to any more."""
    platform, retention = subject.platform, subject.platform.config.retention
    kept = {run.run_id for run in subject.control.runs.with_snapshot(subject.address, keep_runs)}
    seen = subject.visible()
    if seen is not None and seen.run_id is not None:
        kept.add(seen.run_id)
    before = platform.clock.now() - timedelta(days=retention.days)
    return subject.control.forget(subject.address, newest=max(retention.runs, keep_runs), before=before, kept=kept)


def sweep_store(platform: Platform) -> int:
    """Removes old temporary files from the whole store. Once for all subjects: it looks into every folder."""
    return platform.store.sweep(everywhere=True, older_than=TEMPORARY_AGE)


def _kept(run: Run[UpkeepSubject], compactor: Compactor, upkeep: TableUpkeep, older_than: timedelta) -> dict[str, Any]:
    platform, name = run.subject.platform, upkeep.table
    distrusted = why_distrusted(platform.reader, platform.store, name)
    if distrusted:
        # Expiring removes files as well, and a commit now would hide what the other catalogue wrote.
        return {"left alone": distrusted}
    facts: dict[str, Any] = {}
    if upkeep.order:
        facts |= _compacted(run, compactor, name, upkeep.order)
    with run.step("expire"):
        run.confirm()
        facts["snapshots removed"] = compactor.expire(name, upkeep.kept)
    with run.step("sweep"):
        run.confirm()
        now, more = platform.clock.now(), [f"{name}{SHADOW}"]
        swept = sweep(platform.reader, platform.store, name, now=now, older_than=older_than, more=more)
    facts |= {"files removed": swept.removed, "young files kept": swept.kept_young}
    return facts | ({"left alone": swept.refused} if swept.refused else {})


def _compacted(run: Run[UpkeepSubject], compactor: Compactor, name: str, order: str) -> dict[str, Any]:
    """Rewritten files on a branch, compared row by row with those they replace, and published in one commit."""
    subject, reader = run.subject, run.subject.platform.reader
    base = reader.published(name)
    if base is None:
        return {}
    ours = {key: value for key, value in summary_of(base).items() if key.startswith(OURS) and key != RUN_ID}
    with run.step("compact"):
        done = compactor.compact(name, run.run_id, order, ours | {RUN_ID: run.run_id})
        drop_dangling_deletes(reader.existing(name), run.run_id)
    table = reader.existing(name)
    staged = staged_snapshots(table, run.branch, base.snapshot_id)
    if not staged:
        discard(table, run.branch)
        return {**done}
    with run.step("compare"):
        from tidemark.lake_compare import same_rows  # slow to import, and every subject imports this module

        rows, same = same_rows(table, base.snapshot_id, staged[0].snapshot_id)
        summary = f"{rows} rewritten rows are {'the same' if same else 'not the same'} as before"
        run.require([CheckResult("compaction_keeps_rows", same, summary)])
    run.confirm()
    with run.step("publish"):
        primary = visible(reader, name)
        record = {**(primary.record if primary else {}), **subject.record_now()}
        after = publish_branch(table, run.run_id, base.snapshot_id, record=record, summary=ours)
        run.published = True
    assert after is not None, "something was staged"
    with run.step("follow"):
        subject.compacted(base.snapshot_id, after, run.confirm)
    return {**done, "rows compared": rows}
