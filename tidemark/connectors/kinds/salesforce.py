"""Objects of Salesforce, by SOQL over its REST API: a window cut by counting, keyset inside."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from tidemark.connectors.contract import Connector, Slice, StreamDescription, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.kinds._salesforce_api import Answer, SalesforceApi
from tidemark.connectors.kinds._salesforce_fields import STAMP, batch_of, schema_of
from tidemark.connectors.kinds._salesforce_login import login_of
from tidemark.connectors.kinds._salesforce_soql import EPOCH, Position, Soql
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SchemaRefused, SourceError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
DELETED = "IsDeleted"
# A slice smaller than this is not worth a task of its own, one larger is too much to read again.
LEAST_RECORDS = 10_000
MOST_RECORDS = 250_000
# How often a window is halved at most: every time costs a request.
HALVINGS = 12
# Whatever is read without regard to the cursor is in the order of the Id.
BY_ID = Slice(0, nulls=True)
# How often a page is read whose records change while their fields come in parts.
ATTEMPTS = 3


class SalesforceConnector(Connector):
    """Settings: `instance` or `domain`, `version`, `api_limit_share`, `ca_file`. Credentials: one of several logins."""

    kind = "salesforce"
    default_page = 10_000

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> None:
        super().__init__(settings, credentials)
        self._api = SalesforceApi(login_of(self.settings, self.credentials), self.pace)

    def streams(self) -> list[StreamDescription]:
        return sorted(self._api.objects(), key=lambda each: each.source)

    def discover(self, stream: StreamSpec) -> pa.Schema:
        return schema_of(list(self._soql(stream).fields.values()))

    def now(self, stream: StreamSpec) -> Cursor | None:
        if stream.cursor is None:
            return None
        soql = self._soql(stream)
        first = soql.cursor[0]
        single = len(stream.cursor_fields) == 1
        if first.declared in ("datetime", "date"):
            moment = self._api.clock(stream.id)
            if first.declared == "date":
                day = moment.astimezone(ZoneInfo(stream.cursor_zone or "UTC")).date()
                return stream.parse_cursor(day if single else [day])
            return stream.parse_cursor(moment if single else [moment])
        return self._extreme(soql, Window(), greatest=True)

    def count(self, stream: StreamSpec, window: Window) -> int | None:
        return self._counted(self._soql(stream), window)

    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        if window.empty:
            return []
        if stream.cursor is None:
            return [Slice(0)]
        soql = self._soql(stream)
        bounds: list[str | None] = [None if window.lower is None else str(window.lower)]
        bounds += [str(cut) for cut in self._cuts(soql, window, parallel)]
        ends = [*bounds[1:], None if window.upper is None else str(window.upper)]
        last = len(bounds) - 1
        slices = [
            Slice(number, lower, upper, window.closed and number == last)
            for number, (lower, upper) in enumerate(zip(bounds, ends, strict=True))
        ]
        nullable = stream.null_cursor != "exclude" and any(field.nullable for field in soql.cursor)
        if nullable and self._query(stream, soql.without_cursor()).records:
            slices.append(Slice(len(slices), nulls=True))
        return slices

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        soql = self._soql(stream)
        fields = list(soql.fields.values())

        def page(after: Position | None) -> Answer:
            return self._page(soql, slice, after, page_size)

        for records in self._pages(soql, slice, page, page_size):
            yield batch_of(records, fields, stream.id)

    def keys(self, stream: StreamSpec, page_size: int) -> Iterator[pa.RecordBatch]:
        soql = self._soql(stream)
        lacking = [name for name in stream.key if name not in soql.fields]
        if lacking:
            raise SchemaRefused(f"{stream.id}: '{stream.source_name}' has no field {', '.join(lacking)}, which `key` names.")
        fields = [soql.fields[name] for name in stream.key]
        names = list(dict.fromkeys(["Id", *(field.name for field in fields)]))

        def page(after: Position | None) -> Answer:
            # Not those in the recycle bin: they are deleted.
            return self._api.query(soql.keys(names, after, page_size), stream.id)

        for records in self._pages(soql, BY_ID, page, page_size):
            yield batch_of(records, fields, stream.id)

    def close(self) -> None:
        self._api.close()

    # --- parts -------------------------------------------------------------------------------------------------------

    def _soql(self, stream: StreamSpec) -> Soql:
        name = stream.source_name
        if not NAME.fullmatch(name):
            raise ConfigError(f"{stream.id}: '{name}' cannot be the name of an object of Salesforce, such as Account.")
        fields = self._api.fields(name, stream.id)
        if "Id" not in fields:
            raise ConfigError(f"{stream.id}: Salesforce does not let '{name}' be queried record by record.")
        if stream.deletes == "flag" and stream.delete_flag not in fields:
            raise ConfigError(f"{stream.id}: '{name}' has no field '{stream.delete_flag}', which `delete_flag` names.")
        return Soql(stream, fields)

    def _query(self, stream: StreamSpec, soql: str) -> Answer:
        """Deleted records are requested where their flag marks deletions."""
        deleted = stream.deletes == "flag" and stream.delete_flag == DELETED
        return self._api.query(soql, stream.id, deleted=deleted)

    def _counted(self, soql: Soql, window: Window) -> int:
        return self._query(soql.stream, soql.count(window)).total

    def _extreme(self, soql: Soql, window: Window, *, greatest: bool) -> Cursor | None:
        found = self._query(soql.stream, soql.extreme(window, greatest=greatest)).records
        if not found:
            return None
        values = [found[0].get(field.name) for field in soql.cursor]
        return soql.stream.parse_cursor(values[0] if len(values) == 1 else values)

    def _pages(
        self, soql: Soql, slice: Slice, ask: Callable[[Position | None], Answer], size: int
    ) -> Iterator[list[dict[str, Any]]]:
        """Page after page, each behind the last record of the one before."""
        stream = soql.stream
        after: Position | None = None
        while True:
            page = ask(after)
            if page.records:
                last = soql.position(page.records[-1], slice)
                if last == after:
                    raise SourceError(
                        f"{stream.id}: Salesforce gives the same records again and again: it does not compare "
                        f"'{stream.cursor_field}' as it shows it. Choose another cursor."
                    )
                after = last
                yield page.records
            # By what the server found: records that were deleted between two batches are missing in what it gave.
            if page.total < size:
                return
            if not page.records:
                raise SourceError(f"{stream.id}: Salesforce found records and gave none of them. Run again.")

    def _page(self, soql: Soql, slice: Slice, after: Position | None, size: int) -> Answer:
        """The next records, with all their fields: those of wide objects come in parts, which must be of one version."""
        stream = soql.stream
        first, *others = soql.selections()
        for _ in range(ATTEMPTS):
            page = self._query(stream, soql.page(slice, first, after, size))
            if not (page.records and others):
                return page
            last = soql.position(page.records[-1], slice)
            parts = [page, *(self._query(stream, soql.same_page(slice, names, after, last)) for names in others)]
            by_id = [{record.get("Id"): record for record in part.records} for part in parts]
            if all(versions(part) == versions(by_id[0]) for part in by_id):
                whole = [{name: value for part in by_id for name, value in part[key].items()} for key in by_id[0]]
                return Answer(whole, page.total)
        raise SourceError(
            f"{stream.id}: records of '{stream.source_name}', which has more fields than a request can name, change while "
            "they are read in parts. Run again, or set a smaller `page_size`."
        )

    def _cuts(self, soql: Soql, window: Window, parallel: int) -> list[Cursor]:
        """Values of the cursor's first field that cut the window into parts of about so many records."""
        stream, first = soql.stream, soql.cursor[0]
        count = self._counted(soql, window)
        size = min(max(-(-count // parallel), LEAST_RECORDS), MOST_RECORDS)
        if count <= size or first.declared not in ("datetime", "int", "long"):
            return []
        least, greatest = (self._extreme(soql, window, greatest=greatest) for greatest in (False, True))
        if least is None or greatest is None:
            return []

        def cursor(place: int) -> Cursor:
            value = EPOCH + timedelta(seconds=place) if first.declared == "datetime" else place
            return stream.parse_cursor(value if isinstance(stream.cursor, str) else [value])

        def halved(low: int, high: int, inside: int, times: int) -> list[int]:
            middle = (low + high) // 2
            # Half as many again is no reason for one more cut.
            if 2 * inside <= 3 * size or middle == low or times == HALVINGS:
                return []
            left = self._counted(soql, Window(cursor(low), cursor(middle)))
            cut = [middle] if 0 < left < inside else []
            return [*halved(low, middle, left, times + 1), *cut, *halved(middle, high, inside - left, times + 1)]

        return [cursor(place) for place in halved(place_of(least), place_of(greatest) + 1, count, 0)]


def place_of(cursor: Cursor) -> int:
    """A cursor as a whole number: a time as its second."""
    first = (cursor.parts or (cursor,))[0]
    return int(str(first)) if first.timestamp is None else first.timestamp.instant // 10**9


def versions(records: Mapping[Any, Mapping[str, Any]]) -> dict[Any, Any]:
    return {key: record.get(STAMP) for key, record in records.items()}
