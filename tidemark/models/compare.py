"""Two schemas side by side, by name and path: what the query has that the table lacks, and the other way round."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampType,
)

ChangeKind = Literal["new", "missing", "wider", "narrower", "other"]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """One place at which query and table differ. A path in the table is spelled as the table spells it."""

    kind: ChangeKind
    path: Path
    table_type: IcebergType | None = None
    query_type: IcebergType | None = None

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def column(self) -> str:
        """The column that it is in, or is."""
        return self.path[0]

    @property
    def nested(self) -> bool:
        return len(self.path) > 1

    @property
    def in_place(self) -> bool:
        """Whether the table's format lets the column take the wider type as it stands."""
        return self.kind == "wider" and not isinstance(self.table_type, DateType)

    def told(self) -> str:
        """The change in a few words, with its types."""
        if self.kind == "new":
            return f"new {self.name} ({self.query_type})"
        if self.kind == "missing":
            return f"missing {self.name} ({self.table_type})"
        return f"{self.kind} type of {self.name} ({self.table_type} → {self.query_type})"


@dataclass(frozen=True)
class SchemaDiff:
    """All changes, new ones in the order of the query, the others in that of the table."""

    changes: tuple[Change, ...]
    looks_renamed: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def of(self, *kinds: ChangeKind) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.kind in kinds)

    @property
    def new_columns(self) -> tuple[Change, ...]:
        return self.of("new")

    @property
    def missing_columns(self) -> tuple[Change, ...]:
        return self.of("missing")

    @property
    def type_mismatches(self) -> tuple[Change, ...]:
        return self.of("wider", "narrower", "other")

    def told(self) -> str:
        return "; ".join(change.told() for change in self.changes) or "no change"


def compared(query: Sequence[NestedField], table: Sequence[NestedField]) -> SchemaDiff:
    """The difference. Order, letter case, nullability and comments are none."""
    changes = tuple(_fields(query, table, ()))
    return SchemaDiff(changes, tuple(_renamed(query, table, changes)))


def doubled(names: Sequence[str]) -> list[str]:
    """Names that stand more than once when letter case does not count."""
    folded = [name.lower() for name in names]
    return sorted({name for name, low in zip(names, folded, strict=True) if folded.count(low) > 1})


def _fields(query: Sequence[NestedField], table: Sequence[NestedField], path: Path) -> Iterator[Change]:
    wanted = {field.name.lower(): field for field in query}
    stored = {field.name.lower(): field for field in table}
    for name, field in wanted.items():
        if name not in stored:
            yield Change("new", (*path, field.name), query_type=field.field_type)
    for name, field in stored.items():
        here = (*path, field.name)
        if name not in wanted:
            yield Change("missing", here, table_type=field.field_type)
        else:
            yield from _types(wanted[name].field_type, field.field_type, here)


def _types(query: IcebergType, table: IcebergType, path: Path) -> Iterator[Change]:
    if isinstance(query, StructType) and isinstance(table, StructType):
        yield from _fields(query.fields, table.fields, path)
    elif isinstance(query, ListType) and isinstance(table, ListType):
        yield from _types(query.element_type, table.element_type, (*path, "element"))
    elif isinstance(query, MapType) and isinstance(table, MapType) and same(query.key_type, table.key_type):
        yield from _types(query.value_type, table.value_type, (*path, "value"))
    elif not same(query, table):
        yield Change(_kind(query, table), path, table, query)


def _kind(query: IcebergType, table: IcebergType) -> ChangeKind:
    if widens(table, query):
        return "wider"
    return "narrower" if widens(query, table) else "other"


def widens(narrow: IcebergType, wide: IcebergType) -> bool:
    """Whether every value of the one is a value of the other, and the lake's format knows that."""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision < wide.precision
    pairs = ((IntegerType, LongType), (FloatType, DoubleType), (DateType, TimestampType))
    return any(isinstance(narrow, less) and isinstance(wide, more) for less, more in pairs)


def same(one: IcebergType, other: IcebergType) -> bool:
    """Equal types, whatever the numbers of their fields and whether they may be NULL."""
    if isinstance(one, PrimitiveType) or isinstance(other, PrimitiveType):
        return one == other
    if isinstance(one, ListType) and isinstance(other, ListType):
        return same(one.element_type, other.element_type)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return same(one.key_type, other.key_type) and same(one.value_type, other.value_type)
    if isinstance(one, StructType) and isinstance(other, StructType):
        names = [[field.name.lower() for field in each.fields] for each in (one, other)]
        pairs = zip(one.fields, other.fields, strict=False)
        return names[0] == names[1] and all(same(a.field_type, b.field_type) for a, b in pairs)
    return False


def _renamed(
    query: Sequence[NestedField], table: Sequence[NestedField], changes: Sequence[Change]
) -> Iterator[tuple[str, str]]:
    """Columns removed and added with the same type at the same place: most likely one column with another name."""
    new = {change.name.lower() for change in changes if change.kind == "new" and not change.nested}
    missing = {change.name.lower() for change in changes if change.kind == "missing" and not change.nested}
    for old, now in zip(table, query, strict=False):
        if old.name.lower() in missing and now.name.lower() in new and same(old.field_type, now.field_type):
            yield old.name, now.name
