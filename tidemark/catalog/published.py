"""The published state of a connection, read without Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from tidemark.catalog.labels import Before
from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.marker import parse_marker, preponed
from tidemark.catalog.rows import Kind
from tidemark.catalog.scope import Scope
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import MarkerCorrupt
from tidemark.lake import MARKER, LakeReader
from tidemark.publication import visible

SIGNALS = ["kind", "qualified_name", "object_id", "digest"]
UNITS = f"kind <> '{Kind.COLUMN}'"


@dataclass(frozen=True)
class Published:
    """What readers see, and what is on record about it."""

    snapshot: int | None
    run_id: str | None
    # The latest marker that is known to belong to this snapshot.
    recorded_marker: datetime | None
    last_run: RunRecord | None

    def before(self, since: datetime | None, hours: float = 0) -> Before:
        """What the last run could see. Without a record of it, it is taken to have seen everything.

        `since` has been moved back by so many hours, and so are the moments of what is waiting.
        """
        detail = self.last_run.detail if self.last_run else {}
        scope = detail.get("scope")
        covered = Scope(tuple(scope["include"]), tuple(scope["exclude"])) if scope else Scope()
        waiting = {name: moment and preponed(moment, hours) for name, moment in self.waiting.items()}
        return Before(covered, frozenset(detail.get("unlisted", ())), since, waiting)

    def seen_until(self, marker: datetime | None) -> datetime | None:
        """The marker, or that of the last run if it is earlier: of one that was killed after it moved the marker, nobody
        knows what it could see."""
        of_run = latest_of([self.last_run.marker]) if self.last_run else None
        return min(marker, of_run) if marker and of_run else marker

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

    @property
    def waiting(self) -> dict[str, datetime | None]:
        """What the last run could not see, and when it was last seen, if that is known."""
        detail = self.last_run.detail if self.last_run else {}
        moments = {name: latest_of([text]) for name, text in detail.get("last listed", {}).items()}
        return dict.fromkeys(detail.get("unlisted", ())) | moments


def read_published(reader: LakeReader, control: ControlDatabase, layout: CatalogLayout, subject: str) -> Published:
    last_run = control.runs.latest(subject)
    found, seen = reader.published(layout.table), visible(reader, layout.table)
    if found is None or seen is None:
        return Published(None, None, None, last_run)
    summary = found.summary.additional_properties if found.summary else {}
    markers = [seen.record.get("marker"), summary.get(MARKER)]
    mark = control.marks.get(subject)
    if mark and mark.snapshot == found.snapshot_id:
        markers.append(mark.value)
    return Published(found.snapshot_id, seen.run_id, latest_of(markers), last_run)


def latest_of(markers: list[str | None]) -> datetime | None:
    moments = []
    for text in markers:
        try:
            moments.append(parse_marker(text or ""))
        except MarkerCorrupt:
            continue
    return max(moments, default=None)


def published_signals(reader: LakeReader, table: str, snapshot: int | None) -> pa.Table:
    """Databases, schemas and tables of a snapshot, without their entities: those may be larger than memory."""
    if snapshot is None:
        return pa.schema([(name, pa.string()) for name in SIGNALS]).empty_table()
    return reader.read(table, snapshot, SIGNALS, UNITS)


def published_among(reader: LakeReader, table: str, snapshot: int | None, names: Sequence[str]) -> set[str]:
    """Which of these units a snapshot has."""
    if snapshot is None or not names:
        return set()
    wanted = pa.table({"qualified_name": pa.array(names, pa.string())})
    with reader.connect() as db:
        db.register("wanted", wanted)
        rows = f"(SELECT qualified_name FROM {reader.files(table, snapshot).sql} WHERE {UNITS})"
        found = db.execute(f"FROM {rows} SEMI JOIN wanted USING (qualified_name)").fetchall()
    return {name for (name,) in found}
