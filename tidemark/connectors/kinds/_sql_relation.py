"""A table or view with the conditions that a stream puts on it, in the words of its database."""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemark.connectors.contract import Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.kinds._sql_dialects import Column, Dialect
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import SourceError

# So many records of a sample, in all and for each slice: they come page by page of the table, all of one page much alike,
# and cut slices that differ by a few hundredths.
SAMPLED_ROWS, SAMPLED_A_SLICE = 40_000, 5_000


@dataclass(frozen=True)
class Relation:
    """What a stream reads, as its columns were described just now."""

    dialect: Dialect
    stream: StreamSpec
    columns: dict[str, Column]

    @property
    def schema(self) -> pa.Schema:
        return schema_of(list(self.columns.values()))

    @property
    def table(self) -> str:
        return self.dialect.table(self.stream.source_name)

    @property
    def key(self) -> list[Column]:
        return [self.column(name) for name in self.stream.key]

    @property
    def cursor(self) -> list[Column]:
        types = self.stream.cursor_types
        fields = self.stream.cursor_fields
        listed = (types,) * len(fields) if isinstance(types, str) else types
        return [
            self.dialect.as_cursor(self.column(name), type, self.stream.id)
            for name, type in zip(fields, listed, strict=True)
        ]

    def column(self, name: str) -> Column:
        if name not in self.columns:
            raise SourceError(
                f"{self.stream.id}: '{self.stream.source_name}' has no field '{name}'. It has: {', '.join(self.columns)}."
            )
        return self.columns[name]

    # --- conditions --------------------------------------------------------------------------------------------------

    def inside(self, window: Window) -> str:
        """In the window, and with a cursor at all."""
        if self.stream.cursor is None:
            return "true"
        bounds = [self.dialect.known(column) for column in self.cursor]
        if window.lower is not None:
            bounds.append(self._bounded(">=", window.lower))
        if window.upper is not None:
            bounds.append(self._bounded("<=" if window.closed else "<", window.upper))
        return " AND ".join(bounds)

    def without_cursor(self) -> str:
        return f"NOT ({' AND '.join(self.dialect.known(column) for column in self.cursor)})"

    def with_key(self) -> str:
        return " AND ".join(self.dialect.known(column) for column in self.key)

    def compared(self, columns: list[Column], sign: str, values: list[Any]) -> str:
        """The columns against values of theirs that were read."""
        right = [self.dialect.literal(column, value) for column, value in zip(columns, values, strict=True)]
        return self.dialect.compared([self.dialect.ordered(column) for column in columns], sign, right)

    def _bounded(self, sign: str, bound: Cursor) -> str:
        # A bound with fewer parts stands for all that begin with it.
        parts = bound.parts or (bound,)
        columns = self.cursor[: len(parts)]
        right = [
            self.dialect.bound(column, part, self.stream.cursor_zone) for column, part in zip(columns, parts, strict=True)
        ]
        return self.dialect.compared([self.dialect.ordered(column) for column in columns], sign, right)

    # --- queries -----------------------------------------------------------------------------------------------------

    def select(self, columns: list[Column], where: str) -> str:
        shown = ", ".join(self.dialect.shown(column) for column in columns)
        return f"SELECT {shown} FROM {self.table} WHERE {where}"

    def order(self, columns: list[Column], direction: str = "") -> str:
        return "ORDER BY " + ", ".join(f"{self.dialect.ordered(column)}{direction}" for column in columns)

    def cuts(self, window: Window, count: int, parts: int) -> str:
        """The values `c` of the cursor's first field at which a window of about so many records falls into equal parts.

        Of a large table a sample gives them.
        """
        first, sampled = self.cursor[0], max(SAMPLED_ROWS, SAMPLED_A_SLICE * parts)
        sample = self.dialect.sample(self.stream.source_name, sampled / count) if count > sampled else ""
        # Shown outside: to write every value of a large table as text takes longer than all the rest.
        return (
            f"SELECT DISTINCT {self.dialect.shown(replace(first, name='c'))} "
            f"FROM (SELECT t.{self.dialect.quoted(first.name)} AS {self.dialect.quoted('c')}, "
            f"row_number() OVER (ORDER BY {self.dialect.ordered(first)}) - 1 AS place, count(*) OVER () AS total "
            f"FROM {self.table}{sample} WHERE {self.inside(window)}) AS t "
            f"WHERE place > 0 AND place * {parts} % total < {parts}"
        )


def schema_of(columns: list[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])
