"""The published state of a connection, read without Spark."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from tidemark.catalog.labels import Before
from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.marker import parse_marker
from tidemark.catalog.rows import Kind
from tidemark.catalog.scope import Scope
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import MarkerCorrupt
from tidemark.lake import MARKER, RUN_ID, LakeReader

SYSTEM = "catalog"
UNIT_FIELDS = ["kind", "qualified_name", "object_id", "digest", "entity"]


@dataclass(frozen=True)
class Published:
    """What readers see, and what is on record about it."""

    snapshot: int | None
    run_id: str | None
    # The latest marker that is known to belong to this snapshot.
    recorded_marker: datetime | None
    last_run: RunRecord | None

    def before(self, since: datetime | None) -> Before:
        """What the last run could see. Without a record of it, it is taken to have seen everything."""
        detail = self.last_run.detail if self.last_run else {}
        scope = detail.get("scope")
        covered = Scope(tuple(scope["include"]), tuple(scope["exclude"])) if scope else Scope()
        return Before(covered, frozenset(detail.get("unlisted", ())), since)

    @property
    def labels_of(self) -> str:
        """The run from which the state's labels are seen: the last one, or the one that was rolled back to."""
        if self.last_run is None:
            return self.run_id or ""
        return str(self.last_run.detail.get("rolled back to", self.last_run.run_id))

    @property
    def identity(self) -> str | None:
        return self.last_run.detail.get("identity") if self.last_run else None

    @property
    def unlisted(self) -> dict[str, str]:
        return dict(self.last_run.detail.get("unlisted", {})) if self.last_run else {}


def read_published(reader: LakeReader, control: ControlDatabase, layout: CatalogLayout, subject: str) -> Published:
    last_run = control.runs.latest(SYSTEM, subject)
    found = reader.published(layout.table)
    if found is None:
        return Published(None, None, None, last_run)
    summary = found.summary.additional_properties if found.summary else {}
    markers = [summary.get(MARKER)]
    mark = control.marks.get(mark_subject(subject))
    if mark and mark.snapshot == found.snapshot_id:
        markers.append(mark.value)
    return Published(found.snapshot_id, summary.get(RUN_ID), latest_of(markers), last_run)


def mark_subject(subject: str) -> str:
    return f"{SYSTEM}/{subject}"


def latest_of(markers: list[str | None]) -> datetime | None:
    moments = []
    for text in markers:
        try:
            moments.append(parse_marker(text or ""))
        except MarkerCorrupt:
            continue
    return max(moments, default=None)


def published_units(reader: LakeReader, table: str, snapshot: int | None) -> pa.Table:
    """Databases, schemas and tables of a snapshot, columns left out."""
    if snapshot is None:
        return pa.schema([(name, pa.string()) for name in UNIT_FIELDS]).empty_table()
    return reader.read(table, snapshot, UNIT_FIELDS, f"kind <> '{Kind.COLUMN}'")
