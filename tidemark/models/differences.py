"""How the rows of a model differ between what two runs left."""

from typing import Any

from tidemark.control import RunRecord
from tidemark.errors import StateError
from tidemark.lake_compare import changed_rows
from tidemark.models.subject import ModelSubject
from tidemark.runs.rollback import target_of


def rows_between(subject: ModelSubject, before: RunRecord, after: RunRecord) -> dict[str, Any]:
    """Rows added and removed, by their content in the columns that the table has now, and columns added or removed."""
    table = subject.platform.reader.existing(subject.place.table)
    schemas = []
    for run in (before, after):
        snapshot = table.snapshot_by_id(target_of(run))
        if snapshot is None:
            raise StateError(f"{subject.address}: what run {run.run_id} left is no longer kept: upkeep removed it.")
        number = table.metadata.current_schema_id if snapshot.schema_id is None else snapshot.schema_id
        schemas.append([field.name for field in table.schemas()[number].fields])
    added, removed = changed_rows(table, target_of(before), target_of(after))
    was, now = schemas
    return {
        "subject": subject.address,
        "from_run": before.run_id,
        "to_run": after.run_id,
        "rows_added": added,
        "rows_removed": removed,
        "columns_added": [name for name in now if name not in was],
        "columns_removed": [name for name in was if name not in now],
    }
