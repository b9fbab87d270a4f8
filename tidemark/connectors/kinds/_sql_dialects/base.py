"""What a database must say of itself to be read: names, types, literals, the clock, and the way to Arrow."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pyarrow as pa

from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.cursors import Cursor, CursorType
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.timestamps import Timestamp
from tidemark.errors import ConfigError, SourceError

INSTANT = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# How long somebody else's lock on a table is waited for. Some servers would wait for a day, or for ever.
LOCK_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the source declares it."""

    name: str
    type: pa.DataType
    declared: str
    # It must travel as text to arrive unharmed.
    as_text: bool = False
    # Its text is compared as the instant that it means.
    instant: bool = False
    # No two records have values that its own collation takes for equal.
    unique: bool = False
    # It may lack a value. Only what the database forbids is known never to.
    nullable: bool = True


def locked(who: str) -> SourceError:
    return SourceError(
        f"{who} is locked, and was not let go within {LOCK_SECONDS} s. Run again when the lock's holder is done."
    )


class Dialect(ABC):
    """One database. Picklable: it holds an address, and connects when it is asked something."""

    schemes: ClassVar[tuple[str, ...]]
    port: ClassVar[int | None] = None
    text_type: ClassVar[str] = "text"
    # Records in a page, and in a slice of a large window.
    page: ClassVar[int] = 100_000
    slice: ClassVar[int] = 80_000

    def __init__(self, url: str, target: str) -> None:
        self.url = url
        self.target = target

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    def name(self, source: str) -> str:
        """`table` or `schema.table`; a part in double quotes may have dots."""
        return ".".join(self.quoted(part) for part in parts_of(source))

    def table(self, source: str) -> str:
        """To be put after FROM. The alias keeps `ordered` from meaning the text that a column may be selected as."""
        return f"{self.name(source)} AS t"

    def shown(self, column: Column) -> str:
        """How a column is selected."""
        expression = f"CAST({self.quoted(column.name)} AS {self.text_type})" if column.as_text else self.quoted(column.name)
        return f"{expression} AS {self.quoted(column.name)}"

    def sample(self, source: str, share: float) -> str:
        """What behind the name of a table makes a query see this share of its rows. Empty where that cannot be had."""
        del source, share  # most look at every row to choose
        return ""

    def ordered(self, column: Column) -> str:
        """How a column is compared and sorted."""
        return f"t.{self.quoted(column.name)}"

    def known(self, column: Column) -> str:
        """A condition, never NULL itself: the column has a value."""
        return f"{self.ordered(column)} IS NOT NULL"

    def compared(self, left: list[str], sign: str, right: list[str]) -> str:
        """A condition: one row of values against another, part by part."""
        return f"({', '.join(left)}) {sign} ({', '.join(right)})"

    def literal(self, column: Column, value: Any) -> str:
        """A value of the column as it was read, to be compared with `ordered`."""
        return f"CAST({self.text(written(value))} AS {column.declared})"

    def bound(self, column: Column, cursor: Cursor, zone: str | None) -> str:
        """A bound of a window, to be compared with `ordered`."""
        if cursor.timestamp is None:
            return f"CAST({self.text(str(cursor))} AS {column.declared})"
        moment = self.moment(column, cursor.timestamp, zone)
        return f"CAST({self.text(moment.isoformat(sep=' '))} AS {column.declared})"

    def moment(self, column: Column, timestamp: Timestamp, zone: str | None) -> datetime:
        """An instant as the column would have it, to the microsecond: without a zone, as clocks in the zone show it."""
        moment = EPOCH + timedelta(microseconds=timestamp.instant // 1000)
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            return moment
        return moment.astimezone(ZoneInfo(zone or "UTC")).replace(tzinfo=None)

    def refuse(self, stream: StreamSpec) -> None:
        """What this database cannot do right is refused before anything is read."""
        del stream  # most can do all of it

    def as_cursor(self, column: Column, type: CursorType, stream: str) -> Column:
        """The column as a cursor of that type; refused if its order is another."""
        if not ordered_as(column, type):
            raise ConfigError(
                f"{stream}: '{column.name}' is {column.declared} at the source, which is in another order than "
                f"`cursor_type: {type}` says. Name the type that it has, or take another cursor."
            )
        return column

    def is_text(self, column: Column) -> bool:
        """Whether values are compared letter by letter."""
        return pa.types.is_string(column.type) and not column.as_text

    @abstractmethod
    def tables(self) -> list[StreamDescription]: ...

    @abstractmethod
    def columns(self, source: str) -> list[Column]: ...

    def clock(self, column: Column, zone: str | None) -> str:
        """The database's own time, as a value of the column would be written."""
        moment = self.present()
        if pa.types.is_timestamp(column.type) and column.type.tz is None:
            moment = moment.astimezone(ZoneInfo(zone or "UTC")).replace(tzinfo=None)
        return moment.isoformat()

    @abstractmethod
    def present(self) -> datetime:
        """The database's own time in UTC."""

    def held(self, stream: str) -> AbstractContextManager[Any]:
        """Kept while pages are read one after the other, where it is slow to start again."""
        del stream  # most are not
        return nullcontext()

    @abstractmethod
    def fetch(self, sql: str, stream: str, held: Any = None) -> pa.Table:
        """The rows of a query, over what is held if that is given."""

    def rows(self, sql: str, stream: str, held: Any = None) -> Iterator[pa.RecordBatch]:
        """The same in batches; as they come, where the driver can, so that a page may be larger than memory."""
        yield from self.fetch(sql, stream, held).to_batches()

    def about(self, table: str, where: str, stream: str) -> int | None:
        """About how many rows a query would give, where the database can guess. Only many of them need a guess."""
        del table, where, stream  # most can only count
        return None


def ordered_as(column: Column, type: CursorType) -> bool:
    """Whether a database sorts the column as cursors of the type are sorted. As text, 10 comes before 9."""
    if type == "timestamp":
        return bool(pa.types.is_timestamp(column.type) or pa.types.is_date(column.type))
    if type == "text":
        return bool(pa.types.is_string(column.type)) and not column.as_text
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return column.as_text or any(is_number(column.type) for is_number in numbers)


def parts_of(source: str) -> list[str]:
    found = re.findall(r'"((?:[^"]|"")+)"|([^."]+)', source)
    return [quoted.replace('""', '"') or plain for quoted, plain in found]


def source_of(*parts: str) -> str:
    """The other way: what `parts_of` takes apart."""
    return ".".join('"' + part.replace('"', '""') + '"' if re.search(r'[."]', part) else part for part in parts)


def written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return repr(value) if isinstance(value, float) else str(value)
