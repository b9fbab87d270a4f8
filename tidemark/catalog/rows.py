"""The rows of a state: one per entity, the same in what a run extracts and in the published table."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa


class Kind(StrEnum):
    DATABASE = "database"
    SCHEMA = "schema"
    TABLE = "table"
    COLUMN = "column"


# Not an entity: says of a table that was listed that nothing had its name any more when its columns were read.
VANISHED = "vanished"


class Label(StrEnum):
    """What happened to an entity in a run."""

    CREATED = "CREATED"
    UPDATED = "UPDATED"
    BACKFILL = "BACKFILL"
    NO_CHANGE = "NO CHANGE"
    REMOVED = "REMOVED"
    # Not seen and not proven gone: its schema could not be listed, or it was dropped after the listing. Carried forward.
    UNKNOWN = "UNKNOWN"


FRESH = frozenset({Label.CREATED, Label.UPDATED, Label.BACKFILL})
CARRIED = frozenset({Label.NO_CHANGE, Label.UNKNOWN})

# A *unit* is what is carried or replaced as a whole: a table with its columns, a schema, a database.
STATE_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("unit_key", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32(), nullable=False),
        pa.field("qualified_name", pa.string(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("object_id", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("label", pa.string(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("entity", pa.string(), nullable=False),
    ]
)


class Row(NamedTuple):
    """One entity of a state. `label` and `run_id` are those of the run that last read it."""

    kind: str
    unit_key: int
    ordinal: int
    qualified_name: str
    unit: str
    object_id: str | None
    digest: str | None
    label: str
    run_id: str
    entity: str


def as_table(rows: Iterable[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(STATE_SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, STATE_SCHEMA, strict=True)], STATE_SCHEMA
    )


# A stored entity has no label of its own: carried rows are never touched, so a label in them would go stale. It is put in
# on the way out, in front of the two braces with which every entity ends.
TAIL = "}}"


def with_label(entity: str, label: str) -> str:
    return f'{entity[: -len(TAIL)]},"incremental_state":"{label}"{TAIL}'
