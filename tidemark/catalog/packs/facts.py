"""What a source says about its databases, schemas, tables and columns."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    name: str
    comment: str | None


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """`listed` is False for a schema that exists but does not show its tables to us: they are unknown, not removed."""

    database: str
    name: str
    comment: str | None
    listed: bool
    why_not: str | None


# Database, schema and table as the source spells them.
TableName = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is partitioned: strategy and key as the source prints them; `count` are its direct partitions."""

    strategy: str
    keys: str
    count: int


@dataclass(frozen=True, slots=True)
class TableFacts:
    """`created_at` and `changed_at` are only filled by packs whose signal is a clock.

    A partition has `partition_of` and `partition_bound`, a partitioned table has `partitioning`; a partition that is
    partitioned itself has all three. `inherits` are the parents by plain inheritance, in their order.
    """

    database: str
    schema: str
    name: str
    kind: str
    object_id: str
    digest: str
    comment: str | None
    definition: str | None
    column_count: int
    created_at: datetime | None = None
    changed_at: datetime | None = None
    partitioning: Partitioning | None = None
    partition_of: TableName | None = None
    partition_bound: str | None = None
    inherits: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """`primary_key` is the place in the key, from 1; `foreign_keys` are the (database, schema, table, column) meant."""

    name: str
    ordinal: int
    data_type: str
    length: int | None
    precision: int | None
    scale: int | None
    nullable: bool
    default: str | None
    comment: str | None
    primary_key: int | None
    foreign_keys: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table whose columns are requested. By name only: what is read is what has the name now, whatever was listed."""

    database: str
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class TableReading:
    """A table and its columns from one consistent reading: the digest is that of exactly these columns."""

    table: TableFacts
    columns: tuple[ColumnFacts, ...]
