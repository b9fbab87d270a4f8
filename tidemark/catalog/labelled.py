"""The label of every database, schema and table, some thousand at a time: a source may have a million tables."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tidemark.catalog.entities import ENTITY_FORM, EntityWriter, signal_of
from tidemark.catalog.labels import Before, Known, Seen, label, unique
from tidemark.catalog.names import parent_of, unit_key
from tidemark.catalog.packing import qualified_names
from tidemark.catalog.packs.base import Listing, TableFacts
from tidemark.catalog.rows import Kind, Label, Row, as_table
from tidemark.catalog.scope import Scope
from tidemark.runs.reasons import Mode

UNITS_AT_ONCE = 20_000


# Nobody reads the entity of a table here: a fresh one is stored as it was read, what is stored of others stays.
NO_ENTITY = ""


@dataclass
class Previous:
    """The published units by name, and which of them the source lists now."""

    signals: pa.Table
    names: pa.Array = field(init=False)
    listed: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.names = self.signals["qualified_name"].combine_chunks()
        self.listed = np.zeros(len(self.names), bool)

    def places(self, names: pa.Array | pa.ChunkedArray) -> Any:
        """Where each of the names stands; NULL for what is not in the state."""
        return pc.index_in(names, self.names)

    def known(self, names: list[str], places: pa.Array) -> list[Known | None]:
        """What is known of some units, which are listed now."""
        self.listed[places.drop_null().to_numpy(zero_copy_only=False)] = True
        signals = (self.signals[each].take(places).to_pylist() for each in ("object_id", "digest"))
        there = places.is_valid().to_pylist()
        rows = zip(names, there, *signals, strict=True)
        return [Known(name, object_id, digest) if known else None for name, known, object_id, digest in rows]

    def left(self) -> Iterator[pa.RecordBatch]:
        """What the source does not list any more."""
        yield from self.signals.filter(pa.array(~self.listed)).to_batches(max_chunksize=UNITS_AT_ONCE)


@dataclass(frozen=True)
class Labelling:
    """How one run labels what one listing shows."""

    listing: Listing
    write: EntityWriter
    scope: Scope
    before: Before
    mode: Mode
    run_id: str
    # The state is that of another source: what is not listed is removed, since that another server hides a schema says
    # nothing about it.
    source_replaced: bool = False

    def units(self, published: pa.Table) -> Iterator[pa.Table]:
        """One row per database, schema and table, listed now or in the published state, some of one kind at a time.

        `published` has the fields of SIGNALS of the published units.
        """
        previous = Previous(published)
        for kind, places in ((Kind.DATABASE, self._databases()), (Kind.SCHEMA, self._schemas())):
            yield from self._labelled_places(kind, list(places), previous)
        yield from self._tables(previous)
        unlisted = {self.write.name(schema.database, schema.name) for schema in self.listing.schemas if not schema.listed}
        for batch in previous.left():
            rows = as_table(self._left_behind(batch, unlisted))
            for kind in (Kind.DATABASE, Kind.SCHEMA, Kind.TABLE):
                of_kind = rows.filter(pc.equal(rows["kind"], kind))
                if of_kind.num_rows:
                    yield of_kind

    # --- databases and schemas ---------------------------------------------------------------------------------------

    def _databases(self) -> Iterator[tuple[Seen, str]]:
        for database in self.listing.databases:
            entity = self.write.database(database)
            yield Seen(self.write.name(database.name), None, _digest(entity)), entity

    def _schemas(self) -> Iterator[tuple[Seen, str]]:
        for schema in self.listing.schemas:
            entity = self.write.schema(schema)
            yield Seen(self.write.name(schema.database, schema.name), None, _digest(entity)), entity

    def _labelled_places(self, kind: Kind, places: list[tuple[Seen, str]], previous: Previous) -> Iterator[pa.Table]:
        names = list(unique(seen for seen, _ in places))
        found = previous.known(names, previous.places(pa.array(names, pa.string())))
        full = self.mode is not Mode.INCREMENTAL
        rows = [
            self._row(kind, seen, Label.CREATED if full else label(known, seen, was_visible=True), entity)
            for (seen, entity), known in zip(places, found, strict=True)
        ]
        if rows:
            yield as_table(rows)

    # --- tables ------------------------------------------------------------------------------------------------------

    def _tables(self, previous: Previous) -> Iterator[pa.Table]:
        packed = self.listing.packed
        names = qualified_names(self.write.connection, *map(packed.column, ("database", "schema", "name")))
        places = previous.places(names)
        tables, start = iter(packed), 0
        while some := list(islice(tables, UNITS_AT_ONCE)):
            window = slice(start, start + len(some))
            covered = [self.scope.covers(table.schema, table.name) for table in some]
            mask = pa.array(covered)
            kept = names[window].filter(mask).to_pylist()
            found = previous.known(kept, places[window].filter(mask).combine_chunks())
            seen = (table for table, inside in zip(some, covered, strict=True) if inside)
            rows = [self._table_row(*each) for each in zip(seen, kept, found, strict=True)]
            if rows:
                yield as_table(rows)
            start = window.stop

    def _table_row(self, table: TableFacts, name: str, known: Known | None) -> Row:
        seen = Seen(name, table.object_id, signal_of(table), table.created_at, table.changed_at)
        given = Label.CREATED
        if self.mode is Mode.INCREMENTAL:
            schema = parent_of(name)
            visible = self.before.could_see(table.schema, table.name, schema)
            given = label(known, seen, was_visible=visible, since=self.before.since_of(schema, name))
        return self._row(Kind.TABLE, seen, given, NO_ENTITY)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _left_behind(self, batch: pa.RecordBatch, unlisted: set[str]) -> Iterator[Row]:
        for left in batch.to_pylist():
            name = left["qualified_name"]
            hidden = left["kind"] == Kind.TABLE and parent_of(name) in unlisted and not self.source_replaced
            seen = Seen(name, left["object_id"], left["digest"])
            yield self._row(Kind(left["kind"]), seen, Label.UNKNOWN if hidden else Label.REMOVED, NO_ENTITY)

    def _row(self, kind: Kind, seen: Seen, given: Label, entity: str) -> Row:
        name = seen.qualified_name
        return Row(kind, unit_key(name), 0, name, name, seen.object_id, seen.digest, given, self.run_id, entity)


def _digest(entity: str) -> str:
    return f"{ENTITY_FORM}:{xxhash.xxh3_64_hexdigest(entity.encode())}"
