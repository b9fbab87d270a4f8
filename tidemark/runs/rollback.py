"""Going back to what a run left: the old rows are checked, and published as a new snapshot on top of the others."""

from collections.abc import Mapping
from typing import Any

from pyiceberg.table import Table

from tidemark.checks import CheckResult
from tidemark.control import Marks, RunRecord
from tidemark.control.runs import MARK_VERSION
from tidemark.errors import StateError, UsageError
from tidemark.lake import snapshot_files
from tidemark.publication import Publication, claim, contents_of, publish
from tidemark.runs.run import Run

WHOLE = "snapshot_is_whole"


def version_left_by(marks: Marks, run: RunRecord) -> int | None:
    """The version that the mark had when a run ended; None if there was no mark then."""
    moves = marks.audit(run.subject)
    left = run.detail.get(MARK_VERSION)
    if left is not None:
        found = [move for move in moves if move.to_version == left]
    else:
        # The row of an older version of Tidemark: its own move, or else the newest one before it ended.
        own = [move for move in moves if move.run_id == run.run_id]
        found = own or [move for move in moves if run.finished_at is not None and move.at <= run.finished_at]
    return found[0].to_version if found and found[0].kind != "reset" else None


def target_of(run: RunRecord) -> int:
    """The snapshot that a run left, and nothing else: a run that left none cannot be gone back to."""
    if run.snapshot is None:
        raise UsageError(f"{run.subject}: run {run.run_id} is {run.status} and left nothing to go back to.")
    return run.snapshot


def check_target(run: Run[Any], table: Table, snapshot: int) -> None:
    """Stops the run unless every file of the snapshot is still there: a reader must never meet one that is gone."""
    if table.snapshot_by_id(snapshot) is None:
        noun, _, name = run.subject.address.partition("/")
        raise StateError(
            f"{run.subject.address}: what that run left is no longer kept: upkeep removed it. "
            f"`tidemark {noun} history {name}` lists the runs that can be gone back to."
        )
    files = snapshot_files(table, snapshot)
    paths = {*files.data, *(path for deletes in files.deletes.values() for path in deletes)}
    missing = sorted(path for path in paths if not table.io.new_input(path).exists())
    words = f"{len(missing)} of {len(paths)} files are missing" if missing else f"{len(paths)} files are there"
    run.require([CheckResult(WHOLE, not missing, words, {"first": missing[:5]})])


def roll_back(
    run: Run[Any],
    table: Table,
    to_snapshot: int,
    *,
    record: Mapping[str, Any] | None = None,
    summary: Mapping[str, str] | None = None,
    with_schema: bool = False,
) -> int:
    """Publishes the rows of an old snapshot as a new one. `with_schema`: with the columns that it had, too."""
    target, base = table.snapshot_by_id(to_snapshot), table.current_snapshot()
    assert target is not None, "checked before"
    assert base is not None, "a table that has a past has a present"
    schema = None
    if with_schema and target.schema_id is not None and target.schema_id != table.metadata.current_schema_id:
        schema = table.schemas()[target.schema_id]
    branch = claim(table, run.run_id)
    run.confirm()
    contents, claimed = contents_of(table, target), table.catalog.load_table(table.name())
    snapshot = publish(
        claimed,
        Publication(run.run_id, base.snapshot_id, contents, schema, record or {}, summary=summary or {}, branch=branch),
    )
    run.published = True
    assert snapshot is not None, "contents were given"
    return snapshot
