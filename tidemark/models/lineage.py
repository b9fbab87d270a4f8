"""Lineage: which columns the values of a model's columns come from, one step back and to the very beginning."""

from collections.abc import Mapping
from dataclasses import dataclass, field

STAR = "*"


@dataclass(frozen=True)
class Fields:
    """The columns of a table, or the fields of a struct, each with the fields below it."""

    of: Mapping[str, "Fields"] = field(default_factory=dict)

    @classmethod
    def named(cls, *names: str) -> "Fields":
        return cls({name: cls() for name in names})

    def find(self, name: str) -> str | None:
        """The name as it is spelled here."""
        return next((each for each in self.of if each.lower() == name.lower()), None)


@dataclass(frozen=True, order=True)
class Source:
    """A column of a table, or a field in it: `record.cart_id`. A star stands for all that are not known."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}: {self.column}"


@dataclass(frozen=True)
class Lineage:
    """The columns of a query, in its order, each with the columns that its values come from."""

    columns: Mapping[str, tuple[Source, ...]]
    # Columns of which something could not be traced: an unknown table's star, a name that could be of two tables.
    unknown: frozenset[str] = frozenset()

    def reading(self, table: str, column: str | None = None) -> list[str]:
        """The columns that come from the table, or from a column of it."""

        def fits(source: Source) -> bool:
            same = source.table.lower() == table.lower()
            path = source.column.lower()
            return same and (column is None or path == STAR or path.partition(".")[0] == column.lower())

        return [name for name, sources in self.columns.items() if any(map(fits, sources))]


def origins(lineages: Mapping[str, Lineage], table: str, column: str) -> list[Source]:
    """Where a column comes from in the end: columns of tables whose own lineage nobody has."""
    found: set[Source] = set()
    seen: set[Source] = set()
    waiting = [Source(table, column)]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        if here.table in lineages:
            waiting += _column(lineages[here.table], here.column)
        else:
            found.add(here)
    return sorted(found)


def _column(lineage: Lineage, path: str) -> tuple[Source, ...]:
    """What a column, or a field of it, comes from."""
    name = path.partition(".")[0].lower()
    return next((sources for column, sources in lineage.columns.items() if column.lower() == name), ())


def readers(lineages: Mapping[str, Lineage], table: str, column: str) -> list[Source]:
    """The columns of other models that come from a column."""
    return [
        Source(model, name)
        for model, lineage in lineages.items()
        for name in lineage.reading(table, column)
        if model != table
    ]
