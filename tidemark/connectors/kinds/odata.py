"""Entity sets of an OData v4 service: a window cut at values of the cursor, keyset inside.

A server may keep finer timestamps than its filters compare, so pages end at whole ticks of the cursor: the records of the
last tick of a page are left to the next one, and a tick that fills a page is read by key. A server's next links are not
followed: unless it promises otherwise they are offsets, which skip records when others move. Where one cuts a page short,
the next is requested by keyset from the last record that came.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.connectors.bronze import as_text
from tidemark.connectors.contract import Connector, Slice, StreamDescription, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.http import DEFAULT_TIMEOUT, HttpSource, checked_address
from tidemark.connectors.kinds._odata_filter import after, behind, bounded, inside, within
from tidemark.connectors.kinds._odata_model import COMPARED, CURSORS, Entity, Property, entities
from tidemark.connectors.kinds._odata_records import Page, page_of
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SourceError

# Not more records in a slice, so that a run that was stopped has little to read again; and not fewer, to be worth a task.
MOST_RECORDS = 250_000
LEAST_RECORDS = 5_000
# Numbers as text where JSON's would lose digits. Servers that do not know it send numbers.
JSON = {"Accept": "application/json;odata.metadata=minimal;IEEE754Compatible=true", "OData-MaxVersion": "4.01"}


class ODataConnector(Connector):
    """Settings: `url` of the service, `timeout` in seconds. Credentials: `user` and `password`, or `token`, or none."""

    kind = "odata"
    default_page = 5_000

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> None:
        super().__init__(settings, credentials)
        checked_address(self.kind, self.settings, self.credentials, set())
        self._source: HttpSource | None = None
        self._known: dict[str, Entity] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_source": None}

    # --- the contract ------------------------------------------------------------------------------------------------

    def streams(self) -> list[StreamDescription]:
        return [
            StreamDescription(name, entity.key, tuple(each.name for each in entity.properties.values() if each.tick))
            for name, entity in sorted(self._entities("the service").items())
        ]

    def discover(self, stream: StreamSpec) -> pa.Schema:
        self._known.clear()  # asked again: it may have changed since
        return self._entity(stream).schema

    def now(self, stream: StreamSpec) -> Cursor | None:
        if stream.cursor is None:
            return None
        entity, cursor = self._entity(stream), self._cursor(stream)
        if cursor[0].edm in CURSORS["timestamp"]:
            # Of an answer that no cache in between can have kept.
            query = {"$top": "1", "$select": cursor[0].name}
            answer = self._http().get(entity.name, asked(stream), query, {"Cache-Control": "no-cache", **JSON})
            clock = answer.date()
            return stream.parse_cursor(clock if len(cursor) == 1 else [clock])
        order = ",".join(f"{each.name} desc" for each in cursor)
        greatest = self._page(stream, cursor, where=bounded(cursor, Window(), None), order=order, top=1).records
        return cursor_at(greatest, stream, 0) if greatest.num_rows else None

    def count(self, stream: StreamSpec, window: Window) -> int | None:
        entity, where = self._entity(stream), self._where(stream, window)
        query = {"$filter": where} if where else {}
        answer = self._http().get(f"{entity.name}/$count", asked(stream), query)
        text = answer.body.decode("utf-8-sig", "replace").strip()
        if not text.isdecimal():
            raise SourceError(f"{asked(stream)}: the answer to $count is not a number.")
        return int(text)

    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        if window.empty:
            return []
        if stream.cursor is None:
            return [Slice(0)]
        bounds = [None if window.lower is None else str(window.lower), *self._cuts(stream, window, parallel)]
        ends = [*bounds[1:], None if window.upper is None else str(window.upper)]
        last = len(bounds) - 1
        slices = [
            Slice(number, lower, upper, window.closed and number == last)
            for number, (lower, upper) in enumerate(zip(bounds, ends, strict=True))
        ]
        nullable = stream.null_cursor != "exclude" and self._has_nulls(stream)
        return [*slices, Slice(len(slices), nulls=True)] if nullable else slices

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        if stream.cursor is None:
            yield from self._by_keyset(stream, "", self._paging_key(stream), page_size)
        elif slice.nulls:
            yield from self._by_keyset(stream, nulls(self._cursor(stream)), self._paging_key(stream), page_size)
        else:
            yield from self._by_ticks(stream, slice.window(stream), page_size)

    def keys(self, stream: StreamSpec, page_size: int) -> Iterator[pa.RecordBatch]:
        key = self._paging_key(stream)
        fields = [*key, *(each for each in self._fields(stream, stream.key) if each not in key)]
        for page in self._by_keyset(stream, "", key, page_size, fields):
            yield page.select(list(stream.key))

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None

    # --- pages -------------------------------------------------------------------------------------------------------

    def _by_ticks(self, stream: StreamSpec, window: Window, page_size: int) -> Iterator[pa.RecordBatch]:
        """The records of a window in the order of cursor and key."""
        cursor, key = self._cursor(stream), self._paging_key(stream)
        order = [*cursor, *(each for each in key if each not in cursor)]
        start = lowest = self._where(stream, window)
        while True:
            page = self._page(stream, None, where=start, order=names(order), top=page_size)
            records, first = page.records, page.records[cursor[0].name]
            in_order(first, stream, cursor[0])
            if not page.link and records.num_rows < page_size:
                yield from self._inside(stream, records, window, page_size)
                return
            tick = Tick.of_last(first, cursor[0])
            head = records.slice(0, tick.begins)
            yield from self._inside(stream, head, window, page_size)
            if 2 * head.num_rows >= records.num_rows:
                following = f"{lowest} and {cursor[0].name} ge {cursor[0].literal(tick.value)}"
            else:
                rest = [] if any(each.tick for each in cursor[1:]) else cursor[1:]
                inner = [*rest, *(each for each in key if each not in rest)]
                whole = f"{lowest} and {within(cursor[0], tick.value)}"
                for part in self._by_keyset(stream, whole, inner, page_size):
                    yield from self._inside(stream, part, window, page_size)
                following = f"{lowest} and {behind(cursor[0], tick.value)}"
            if following == start:
                raise does_not_obey(stream, "$filter")
            start = following

    def _inside(
        self, stream: StreamSpec, records: pa.RecordBatch, window: Window, page_size: int
    ) -> Iterator[pa.RecordBatch]:
        """The records that are in the window: a filter on a timestamp may have let in more, any other may not."""
        cursor = self._cursor(stream)
        keep = inside(records, cursor, window, stream.cursor_zone)
        if not pc.all(keep, min_count=0).as_py():
            if cursor[0].edm not in CURSORS["timestamp"]:
                raise does_not_obey(stream, "$filter")
            records = records.filter(keep)
        yield from batches(records, page_size)

    def _by_keyset(
        self, stream: StreamSpec, where: str, order: list[Property], page_size: int, fields: list[Property] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Records in an order that no two share, by keyset on it."""
        last: list[Any] | None = None
        while True:
            rest = after(order, last) if last is not None else ""
            both = " and ".join(part for part in (where, rest) if part)
            page = self._page(stream, fields, where=both, order=names(order), top=page_size)
            yield from batches(page.records, page_size)
            if not page.link and page.records.num_rows < page_size:
                return
            first, final = (
                [page.records[each.name][place].as_py() for each in order] for place in (0, page.records.num_rows - 1)
            )
            if last in (first, final):
                raise does_not_obey(stream, "$filter")
            if None in final:
                raise SourceError(
                    f"{asked(stream)}: a record lacks a part of its key, so what follows it cannot be requested."
                )
            last = final

    def _page(
        self, stream: StreamSpec, fields: Iterable[Property] | None, *, where: str, order: str, top: int, skip: int = 0
    ) -> Page:
        """One page of some fields, or of all; only empty if there is nothing more."""
        entity = self._entity(stream)
        chosen = list(fields) if fields is not None else list(entity.properties.values())
        query = {"$filter": where, "$orderby": order, "$top": str(top), "$skip": str(skip) if skip else ""}
        query["$select"] = names(chosen) if fields is not None else ""
        headers = {**JSON, "Prefer": f"odata.maxpagesize={top}"}
        given = {name: value for name, value in query.items() if value}
        page = page_of(self._http().get(entity.name, asked(stream), given, headers), chosen)
        while page.link and not page.records.num_rows:
            # A server may send an empty page with a link to more: there is no record to go on from.
            page = page_of(self._http().follow(page.answer, page.link, headers), chosen)
        return page

    def _http(self) -> HttpSource:
        if self._source is None:
            timeout = float(self.settings.get("timeout", DEFAULT_TIMEOUT))
            self._source = HttpSource(self.settings["url"], self.credentials, self.pace, timeout=timeout)
        return self._source

    # --- the window --------------------------------------------------------------------------------------------------

    def _where(self, stream: StreamSpec, window: Window) -> str:
        return bounded(self._cursor(stream), window, stream.cursor_zone) if stream.cursor is not None else ""

    def _cuts(self, stream: StreamSpec, window: Window, parallel: int) -> list[str]:
        """Values of the cursor's first field that cut the window into parts of about the same size."""
        count = self.count(stream, window) or 0
        parts = min(max(parallel, -(-count // MOST_RECORDS)), -(-count // LEAST_RECORDS))
        first, where = self._cursor(stream)[0], self._where(stream, window)
        cuts = set()
        for place in range(1, parts):
            skip = count * place // parts
            found = self._page(stream, [first], where=where, order=first.name, top=1, skip=skip).records[first.name]
            # None where records were deleted since they were counted.
            cuts |= {stream.parse_cursor(text if len(stream.cursor_fields) == 1 else [text]) for text in texts(found, first)}
        return [str(cut) for cut in sorted(cuts) if window.lower is None or cut > window.lower]

    def _has_nulls(self, stream: StreamSpec) -> bool:
        cursor = self._cursor(stream)
        if not any(each.nullable for each in cursor):
            return False
        order = names(self._paging_key(stream))
        return bool(self._page(stream, cursor, where=nulls(cursor), order=order, top=1).records.num_rows)

    # --- fields ------------------------------------------------------------------------------------------------------

    def _entities(self, what: str) -> dict[str, Entity]:
        return entities(self._http().get("$metadata", what, headers={"Accept": "application/xml"}).body, what)

    def _entity(self, stream: StreamSpec) -> Entity:
        name = stream.source_name
        if name not in self._known:
            found = self._entities(asked(stream))
            if name not in found:
                raise SourceError(
                    f"{stream.id}: the service has no entity set '{name}'. It has: {', '.join(sorted(found))}."
                )
            self._known[name] = found[name]
        return self._known[name]

    def _fields(self, stream: StreamSpec, wanted: Iterable[str]) -> list[Property]:
        properties = self._entity(stream).properties
        for name in wanted:
            if name not in properties:
                has = ", ".join(properties)
                raise SourceError(f"{stream.id}: '{stream.source_name}' has no field '{name}'. It has: {has}.")
        return [properties[name] for name in wanted]

    def _cursor(self, stream: StreamSpec) -> list[Property]:
        fields = self._fields(stream, stream.cursor_fields)
        types = (stream.cursor_types,) if isinstance(stream.cursor_types, str) else stream.cursor_types
        for each, type in zip(fields, types, strict=True):
            loose = each.edm == "Edm.Decimal" and pa.types.is_string(each.type)
            if each.many or each.edm not in CURSORS[type] or loose:
                what = f"{each.edm} without a fixed scale" if loose else each.edm
                raise ConfigError(
                    f"{stream.id}: the cursor '{each.name}' is {what}, which cannot be a cursor of the type {type}. That "
                    f"takes: {', '.join(CURSORS[type])}. Set `cursor_type`, or choose another cursor."
                )
        return fields

    def _paging_key(self, stream: StreamSpec) -> list[Property]:
        """The entity's own key, in the manifest's order where that names the same fields: it is never NULL, never twice."""
        own = self._entity(stream).key
        key = self._fields(stream, stream.key if set(own) == set(stream.key) or not own else own)
        for each in key:
            if each.edm not in COMPARED or each.many:
                raise SourceError(f"{stream.id}: the key '{each.name}' is {each.edm}, which cannot be paged by.")
        return key


@dataclass(frozen=True, slots=True)
class Tick:
    """The last tick of a page: its first value, and where in the page it begins."""

    value: Any
    begins: int

    @classmethod
    def of_last(cls, column: pa.Array, declared: Property) -> "Tick":
        if declared.tick is None:
            return cls(column[-1].as_py(), pc.index(column, column[-1]).as_py())
        counted = column.cast(pa.int64())
        start = counted[-1].as_py() // declared.tick * declared.tick
        return cls(pa.scalar(start, column.type).as_py(), pc.sum(pc.less(counted, start)).as_py())


def in_order(column: pa.Array, stream: StreamSpec, declared: Property) -> None:
    """A server that does not sort, or sorts text by another rule than its letters' numbers, would make us skip records."""
    if column.null_count or not pc.all(pc.less_equal(column[:-1], column[1:]), min_count=0).as_py():
        raise does_not_obey(stream, f"$orderby={declared.name}")


def does_not_obey(stream: StreamSpec, what: str) -> SourceError:
    return SourceError(
        f"{asked(stream)}: the source does not obey {what}: its records are not the ones, or not in the order, that were "
        "requested. Choose another cursor, or none."
    )


def asked(stream: StreamSpec) -> str:
    """What is requested, in words for a message."""
    return f"{stream.id} (entity set '{stream.source_name}')"


def nulls(cursor: Iterable[Property]) -> str:
    return "(" + " or ".join(f"{each.name} eq null" for each in cursor) + ")"


def names(properties: Iterable[Property]) -> str:
    return ",".join(each.name for each in properties)


def batches(records: pa.RecordBatch, page_size: int) -> Iterator[pa.RecordBatch]:
    """Never an empty one, and never a larger one than was requested, even if the source sent more."""
    for start in range(0, records.num_rows, page_size):
        yield records.slice(start, page_size)


def texts(column: pa.Array, declared: Property) -> list[str]:
    """Values as state keeps them, timestamps at the beginning of their tick."""
    if declared.tick is not None:
        counted = column.cast(pa.int64())
        column = pc.multiply(pc.divide(counted, declared.tick), declared.tick).cast(column.type)
    return [text for text in as_text(column).to_pylist() if text is not None]


def cursor_at(records: pa.RecordBatch, stream: StreamSpec, place: int) -> Cursor:
    values = [as_text(records[name])[place].as_py() for name in stream.cursor_fields]
    return stream.parse_cursor(values[0] if len(values) == 1 else values)
