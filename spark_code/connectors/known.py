"""What landed before and could come again: hashes out of those files of Bronze whose bounds say that they may hold some."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, GreaterThanOrEqual, IsNull, Or
from pyiceberg.types import IntegerType, LongType

from spark_code.connectors.plan import IngestPlan
from tidemark.connectors.contract import CheckpointConnector
from tidemark.lake import SnapshotFiles, quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from spark_code.connectors.subject import StreamSubject

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NONE = "SELECT NULL::BLOB AS content_hash WHERE false"


@dataclass(frozen=True)
class Landed:
    """What had landed in Bronze when a run planned, as one snapshot: it never changes."""

    subject: StreamSubject
    plan: IngestPlan
    snapshot: int | None
    # By the condition that they may satisfy: to find them, the table's metadata are read.
    _files: dict[str, SnapshotFiles] = field(default_factory=dict, repr=False)

    def hashes(self) -> pa.Table | None:
        if self.snapshot is None:
            return None
        with self.subject.platform.lake.reader.connect() as db:
            return db.sql(self.known_sql(db)).to_arrow_table()

    def known_sql(self, db: DuckDBPyConnection) -> str:
        """A query for the hashes of what could come again.

        Only what the last run landed of a key counts: a record that has become again what it once was is a change. Of files
        and messages older ones are there next to newer ones, and the connector says which can come again.
        """
        subject, plan = self.subject, self.plan
        stream, connector = subject.stream, subject.connector
        if isinstance(connector, CheckpointConnector):
            bounds = connector.bounds(stream, plan.committed, full=plan.full, slices=plan.slices)
            rows = self._rows(bounds)
            if rows is None:
                return NONE
            again = connector.reachable(stream, plan.committed, full=plan.full, slices=plan.slices, rows=rows)
            return f"SELECT content_hash FROM {rows} WHERE {again}"
        if stream.cursor is None or plan.full:
            rows = self._rows(AlwaysTrue())
            last = "QUALIFY emitted_at = max(emitted_at) OVER (PARTITION BY key_hash)"
            return NONE if rows is None else f"SELECT content_hash FROM {rows} {last}"
        return self._near_sql(db)

    def _near_sql(self, db: DuckDBPyConnection) -> str:
        """Of what the window reaches, which is little, and of its keys alone: by then there may be very many rows."""
        again, bounds = self._reachable()
        if self.subject.stream.null_cursor == "include":
            again, bounds = f"{again} OR cursor IS NULL", Or(bounds, IsNull(term="cursor"))
        rows = self._rows(bounds)
        if rows is None:
            return NONE
        ((oldest,),) = db.execute(f"SELECT epoch_us(min(emitted_at)) FROM {rows} WHERE {again}").fetchall()
        if oldest is None:
            return NONE
        # A later version of such a key was emitted later, whatever its cursor: what was emitted before is not looked at.
        since = EPOCH + timedelta(microseconds=oldest)
        later = self._rows(GreaterThanOrEqual(term="emitted_at", value=since.isoformat()))
        near = f"SELECT key_hash, content_hash, emitted_at FROM {rows} WHERE {again}"
        newest = f"SELECT key_hash, max(emitted_at) AS emitted_at FROM {later} SEMI JOIN near USING (key_hash) GROUP BY ALL"
        lasting = f"SELECT content_hash FROM near SEMI JOIN ({newest}) USING (key_hash, emitted_at)"
        return f"WITH near AS MATERIALIZED ({near}) {lasting}"

    def _reachable(self) -> tuple[str, BooleanExpression]:
        """Rows that the window reaches, as SQL, and as bounds of files. Where their text does not sort as they do, all."""
        stream, lower_text = self.subject.stream, self.plan.lower
        fields = stream.cursor_fields
        if lower_text is None or len(fields) > 1:
            return "true", AlwaysTrue()
        lower = stream.parse_cursor(lower_text)
        if stream.cursor_types == "integer":
            number = int(str(lower))
            # As text, 10 comes before 9; the record has it as a number.
            return f"TRY_CAST(cursor AS HUGEINT) >= {number}", self._from_number(fields[0], number)
        kind = {each.name: each.type for each in self.plan.schema}[fields[0]]
        # A clock without a zone stands in Bronze as its own zone shows it.
        sorts_as_text = pa.types.is_timestamp(kind) and kind.tz is not None and lower.text.endswith(("Z", "+00:00"))
        day = lower.text[:10]
        return (
            (f"cursor >= {quoted(day)}", GreaterThanOrEqual(term="cursor", value=day))
            if sorts_as_text
            else ("true", AlwaysTrue())
        )

    def _from_number(self, name: str, least: int) -> BooleanExpression:
        table = self.subject.bronze.table
        assert table is not None, "it has a snapshot"
        whole = isinstance(table.schema().find_type(f"record.{name}"), IntegerType | LongType)
        return GreaterThanOrEqual(term=f"record.{name}", value=least) if whole else AlwaysTrue()

    def _rows(self, bounds: BooleanExpression) -> str | None:
        """The rows of all files that may have one that satisfies the condition, to be put after FROM; None without files."""
        if self.snapshot is None:
            return None
        key = repr(bounds)
        if key not in self._files:
            reader = self.subject.platform.lake.reader
            self._files[key] = reader.files(self.subject.place.table, self.snapshot, bounds)
        found = self._files[key]
        return found.evolving_sql if found.data else None
