"""What a run will do: its mode and why, and the label of every database, schema and table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pydantic import BaseModel, ConfigDict

from tidemark.catalog.entities import EntityWriter
from tidemark.catalog.labels import Before, Known, Seen, counted, label, unique
from tidemark.catalog.mode import Mode, Reason
from tidemark.catalog.names import unit_key
from tidemark.catalog.packs.base import Listing
from tidemark.catalog.rows import FRESH, Kind, Label, Row, as_table
from tidemark.catalog.scope import Scope

# Part of every digest: when entities get another form, every table is read again.
ENTITY_FORM = "1"


class RunPlan(BaseModel):
    """All that the later steps of a run must know of the first. Kept beside what the run extracts."""

    model_config = ConfigDict(frozen=True)

    connection: str
    run_id: str
    mode: Mode
    reason: Reason
    base_snapshot: int | None
    marker_etag: str | None
    next_marker: datetime
    since: datetime | None
    identity: str
    scope: dict[str, list[str]]
    # Schemas that exist but could not be listed, and the run since when.
    unlisted: dict[str, str]
    counts: dict[str, int]
    tables_before: int
    removals_allowed: bool = False

    @property
    def changes_nothing(self) -> bool:
        touched = {"CREATED", "UPDATED", "BACKFILL", "REMOVED", "schemas and databases"}
        return not any(self.counts[name] for name in touched)


@dataclass(frozen=True, slots=True)
class _Place:
    """A listed unit with what its row needs."""

    kind: Kind
    seen: Seen
    entity: str
    # A table's schema: its name, its qualified name; and the table's own name.
    within: tuple[str, str, str] | None = None


def _digest(entity: str) -> str:
    return f"{ENTITY_FORM}:{xxhash.xxh3_64_hexdigest(entity.encode())}"


def _places(listing: Listing, write: EntityWriter, scope: Scope) -> Iterable[_Place]:
    for database in listing.databases:
        entity = write.database(database)
        yield _Place(Kind.DATABASE, Seen(write.name(database.name), None, _digest(entity)), entity)
    for schema in listing.schemas:
        entity = write.schema(schema)
        name = write.name(schema.database, schema.name)
        yield _Place(Kind.SCHEMA, Seen(name, None, _digest(entity)), entity)
    for table in listing.tables:
        if not scope.covers(table.schema, table.name):
            continue
        name = write.name(table.database, table.schema, table.name)
        seen = Seen(name, table.object_id, f"{ENTITY_FORM}:{table.digest}", table.created_at, table.changed_at)
        within = (table.schema, table.name, write.name(table.database, table.schema))
        yield _Place(Kind.TABLE, seen, write.table(table), within)


def labelled_units(
    listing: Listing,
    write: EntityWriter,
    scope: Scope,
    previous: pa.Table,
    before: Before,
    mode: Mode,
    run_id: str,
) -> pa.Table:
    """One row per database, schema and table, listed now or in the previous state, with its label.

    `previous` has kind, qualified_name, object_id, digest and entity of the published units.
    """
    places = list(_places(listing, write, scope))
    unique(place.seen for place in places)
    known = {row["qualified_name"]: row for row in previous.to_pylist()}
    unlisted = {write.name(schema.database, schema.name) for schema in listing.schemas if not schema.listed}
    since = before.since if mode is Mode.INCREMENTAL else None

    rows = []
    for place in places:
        found = known.pop(place.seen.qualified_name, None)
        given = Label.CREATED
        if mode is Mode.INCREMENTAL:
            given = label(
                Known(found["qualified_name"], found["object_id"], found["digest"]) if found else None,
                place.seen,
                was_visible=place.within is None or before.could_see(*place.within),
                since=since,
            )
        rows.append(_row(place.kind, place.seen, given, run_id, place.entity))
    for name, left in known.items():
        hidden = left["kind"] == Kind.TABLE and name.rpartition("/")[0] in unlisted
        seen = Seen(name, left["object_id"], left["digest"])
        rows.append(_row(Kind(left["kind"]), seen, Label.UNKNOWN if hidden else Label.REMOVED, run_id, left["entity"]))
    return as_table(rows)


def _row(kind: Kind, seen: Seen, given: Label, run_id: str, entity: str) -> Row:
    name = seen.qualified_name
    return Row(kind, unit_key(name), 0, name, name, seen.object_id, seen.digest, given, run_id, entity)


def unlisted_since(listing: Listing, write: EntityWriter, before: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Schemas that could not be listed, each with the first run of this spell."""
    names = (write.name(schema.database, schema.name) for schema in listing.schemas if not schema.listed)
    return {name: before.get(name, run_id) for name in names}


def unit_counts(units: pa.Table) -> dict[str, int]:
    """Tables by label, and how many schemas and databases changed."""
    is_table = pc.equal(units["kind"], Kind.TABLE)
    tables = units.filter(is_table)
    others = units.filter(pc.invert(is_table))
    counts = dict(counted(Label(each) for each in tables["label"].to_pylist()))
    quiet = {Label.NO_CHANGE, Label.UNKNOWN}
    counts["schemas and databases"] = sum(Label(each) not in quiet for each in others["label"].to_pylist())
    return counts


def fresh(units: pa.Table) -> pa.Table:
    """The rows whose entity this run brings."""
    return units.filter(pc.is_in(units["label"], pa.array(sorted(FRESH))))
