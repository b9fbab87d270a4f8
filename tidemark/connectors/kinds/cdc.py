"""Changes of PostgreSQL tables from its log, by logical decoding: inserts, updates, deletions and truncations.

A first run reads a snapshot that a new replication slot exports; the log goes on exactly where the snapshot ends. The log is
only peeked at while it is read. The slot moves when the registry has committed, and never before.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, BooleanExpression, GreaterThanOrEqual

from tidemark.connectors.contract import CheckpointConnector, Slice, StreamDescription
from tidemark.connectors.kinds._cdc_database import (
    Columns,
    Database,
    Publication,
    ReplicationSlot,
    Session,
    Table,
    lsn_text,
    padded,
    read_lsn,
)
from tidemark.connectors.kinds._cdc_log import changed, outlined, read_log
from tidemark.connectors.kinds._cdc_pages import Shape
from tidemark.connectors.kinds._cdc_snapshot import block_ranges, read_snapshot
from tidemark.connectors.kinds._cdc_types import arrow_type
from tidemark.connectors.kinds._pgoutput import Relation
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.unknown_settings import unknown_settings
from tidemark.errors import ConfigError, CursorInvalid, PositionLost, SourceError

SETTINGS = {"url", "publication", "slot"}
# When the log went on by this much without the table, a slice without records moves the slot, which would hold it all.
IDLE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Position:
    """How far the log was read, up to but without `lsn`; and which table was read through which publication."""

    lsn: int
    member: str

    def __str__(self) -> str:
        return f"{lsn_text(self.lsn)}@{self.member}" if self.member else lsn_text(self.lsn)

    @classmethod
    def parse(cls, text: str, stream: StreamSpec) -> "Position":
        found = re.fullmatch(r"([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})(?:@([0-9.]+))?", text)
        if found is None:
            raise CursorInvalid(f"{stream.id}: its state is no place in a PostgreSQL log, such as 0/1A00F38.")
        return cls(read_lsn(found[1]), found[2] or "")


class CdcConnector(CheckpointConnector):
    """Settings: `url`; `publication`, if not one of the stream's own; `slot`, with which the slots' names begin."""

    kind = "cdc"
    checkpoint_field = "_lsn"
    has_log = True
    default_page = 50_000

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> None:
        super().__init__(settings, credentials)
        unknown = sorted(self.settings.keys() - SETTINGS)
        if unknown or not isinstance(self.settings.get("url"), str):
            what = unknown_settings(unknown, SETTINGS) if unknown else "`url` is missing"
            raise ConfigError(f"settings of a cdc connector: {what}. It has: {', '.join(sorted(SETTINGS))}.")
        self._prefix = self.settings.get("slot", "tidemark")
        if not isinstance(self._prefix, str) or not re.fullmatch("[a-z0-9_]{1,40}", self._prefix):
            raise ConfigError("settings of a cdc connector: `slot` must be up to 40 of a–z, 0–9 and _.")
        if not isinstance(self.settings.get("publication", ""), str):
            raise ConfigError("settings of a cdc connector: `publication` must be the name of one.")
        self._database = Database(self.settings["url"], self.credentials, self.pace)
        # The session whose end would end the snapshot of the first run.
        self._exporting: Session | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_exporting": None}

    # --- the contract ------------------------------------------------------------------------------------------------

    def streams(self) -> list[StreamDescription]:
        return self._database.tables()

    def discover(self, stream: StreamSpec) -> pa.Schema:
        with self._database.session(stream.id) as connection:
            table = self._database.table(connection, stream)
            publication = self._database.publication(connection, table, self._publication(connection, stream))
            published = None if publication is None else publication.columns
            return self._shape(stream, self._database.columns(connection, table, published)).fields

    def fields(self, stream: StreamSpec, slices: Iterable[Slice]) -> pa.Schema:
        """They were fixed with the slices: what the log had then, it has now."""
        planned = next(iter(slices), None)
        return self.discover(stream) if planned is None else self._planned(stream, planned).fields

    def pending(self, stream: StreamSpec, checkpoint: str | None, parallel: int) -> list[Slice]:
        with self._database.session(stream.id) as connection:
            self._database.refuse_unable(connection, stream.id)
            table = self._database.table(connection, stream)
            if checkpoint is None:
                return self._snapshot(connection, stream, table, parallel)
            return self._log(connection, stream, table, Position.parse(checkpoint, stream))

    def has_news(self, stream: StreamSpec, checkpoint: str) -> bool:
        """By the log's end, and if it went on by the server's own look at it. What is too long for that is a run's work."""
        with self._database.session(stream.id) as connection:
            position, table = Position.parse(checkpoint, stream), self._database.table(connection, stream)
            peeked, _, upper = self._followed(connection, stream, table, position)
            if upper - position.lsn >= IDLE_BYTES:
                return True
            return upper > position.lsn and changed(self._database, connection, table, peeked)

    def advanced(self, stream: StreamSpec, checkpoint: str | None, slices: Iterable[Slice]) -> str:
        del stream
        reached = [Position(read_lsn(each.upper or ""), each.detail["member"]) for each in slices]
        return str(max(reached, key=lambda position: position.lsn)) if reached else checkpoint or ""

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        reader = read_snapshot if "snapshot" in slice.detail else read_log
        return reader(self._database, stream, slice, self._planned(stream, slice), page_size)

    def acknowledge(self, stream: StreamSpec, checkpoint: str) -> None:
        """Lets the slot move on. One that is gone or lost is for `pending` to report: a full run must get so far."""
        self.close()
        position = Position.parse(checkpoint, stream)
        with self._database.session(stream.id) as connection:
            name = self._slot(connection, stream)
            slot = self._database.slot(connection, name)
            if slot is not None and slot.ours and not slot.lost and slot.confirmed < position.lsn:
                self._database.advance(connection, name, position.lsn)

    def resumable(self, slices: Iterable[Slice]) -> bool:
        """An exported snapshot dies with the process that had it exported; the log is still there."""
        return all("snapshot" not in each.detail for each in slices)

    def forget(self, stream: StreamSpec) -> None:
        """Drops the slot, and the publication if it is the stream's own."""
        self.close()
        with self._database.session(stream.id) as connection:
            name = self._slot(connection, stream)
            self._drop(connection, stream, name, self._database.slot(connection, name))
            if "publication" not in self.settings:
                self._database.tell(connection, f"DROP PUBLICATION IF EXISTS {self._database.names([name])}")

    def reachable(
        self, stream: StreamSpec, checkpoint: str | None, *, full: bool = False, slices: Iterable[Slice] = (), rows: str = ""
    ) -> str:
        del slices, rows
        # What a new snapshot gives is all new, whatever landed before.
        return "false" if full or checkpoint is None else f"cursor >= '{padded(Position.parse(checkpoint, stream).lsn)}'"

    def bounds(
        self, stream: StreamSpec, checkpoint: str | None, *, full: bool = False, slices: Iterable[Slice] = ()
    ) -> BooleanExpression:
        del slices
        if full or checkpoint is None:
            return AlwaysFalse()
        return GreaterThanOrEqual(term="cursor", value=padded(Position.parse(checkpoint, stream).lsn))

    def close(self) -> None:
        if self._exporting is not None:
            self._exporting.close()
            self._exporting = None

    # --- names and shapes --------------------------------------------------------------------------------------------

    def _slot(self, connection: Session, stream: StreamSpec) -> str:
        return self._database.name_for(connection, stream, self._prefix, self.owner)

    def _publication(self, connection: Session, stream: StreamSpec) -> str:
        return self.settings.get("publication") or self._slot(connection, stream)

    def _shape(self, stream: StreamSpec, columns: Columns, changed: Iterable[str] = ()) -> Shape:
        names = [name for name, *_ in columns]
        lacking = [name for name in stream.key if name not in names]
        if lacking:
            raise SourceError(
                f"{stream.id}: '{stream.source_name}' or its publication has no field '{lacking[0]}'. It has: "
                f"{', '.join(names)}."
            )
        return Shape(stream, tuple(columns), frozenset(changed), self.checkpoint_field)

    def _planned(self, stream: StreamSpec, slice: Slice) -> Shape:
        columns = [(name, number, modifier) for name, number, modifier in slice.detail["columns"]]
        return self._shape(stream, columns, slice.detail["changed"])

    def _detail(self, table: Table, publication: Publication, shape: Shape) -> dict[str, Any]:
        return {
            "table": table.number,
            "member": publication.member,
            "columns": [list(column) for column in shape.columns],
            "changed": sorted(shape.changed),
        }

    # --- the snapshot ------------------------------------------------------------------------------------------------

    def _snapshot(self, connection: Session, stream: StreamSpec, table: Table, parallel: int) -> list[Slice]:
        """A new slot, and slices of the table as it was where the slot's log begins."""
        # Before the slot: a log that begins earlier would be read as if the publication were not there.
        publication = self._published(connection, stream, table)
        self.close()
        name = self._slot(connection, stream)
        self._drop(connection, stream, name, self._database.slot(connection, name))
        self._exporting, snapshot, begin = self._database.exporting(stream.id, name)
        # Asked again: what was altered before the snapshot is in it.
        table = self._database.table(connection, stream)
        shape = self._shape(stream, self._database.columns(connection, table, publication.columns))
        detail = self._detail(table, publication, shape) | {"snapshot": snapshot, "storage": table.storage}
        return [
            Slice(number, upper=lsn_text(begin), detail=detail | {"blocks": list(blocks)})
            for number, blocks in enumerate(block_ranges(table, parallel))
        ]

    def _published(self, connection: Session, stream: StreamSpec, table: Table) -> Publication:
        """The publication, made if it is the stream's own."""
        name = self._publication(connection, stream)
        found = self._database.publication(connection, table, name)
        if (found is None or found.columns is None) and "publication" not in self.settings:
            self._database.publish(connection, stream, name, add=found is not None)
            found = self._database.publication(connection, table, name)
        if found is None or found.columns is None:
            raise SourceError(
                f"{stream.id}: there is no publication '{name}' with '{stream.source_name}' at {self._database.target}. "
                f"`CREATE PUBLICATION {name} FOR TABLE {stream.source_name}`, or add the table to it; a partitioned table "
                "needs `publish_via_partition_root = true`."
            )
        found.refuse_partial(stream, name)
        return found

    def _drop(self, connection: Session, stream: StreamSpec, name: str, slot: ReplicationSlot | None) -> None:
        if slot is None:
            return
        if not slot.ours or slot.active:
            why = "is in use" if slot.ours else "is not of pgoutput in this database"
            raise SourceError(
                f"{stream.id}: the replication slot '{name}' at {self._database.target} {why}. End what uses it, or choose "
                "another beginning of the name with `slot`."
            )
        self._database.ask(connection, "SELECT pg_drop_replication_slot(%s)::text", name)

    # --- the log -----------------------------------------------------------------------------------------------------

    def _log(self, connection: Session, stream: StreamSpec, table: Table, position: Position) -> list[Slice]:
        """One slice, from the position to the present end of the log, if the log has something for the table."""
        peeked, publication, upper = self._followed(connection, stream, table, position)
        relations, touched = outlined(self._database, connection, table, position.lsn, upper, peeked)
        if not touched and upper - position.lsn < IDLE_BYTES:
            return []
        present = self._database.columns(connection, table, publication.columns)
        detail = self._detail(table, publication, self._united(stream, present, relations)) | {"peeked": peeked}
        return [Slice(0, lsn_text(position.lsn), lsn_text(upper), detail=detail)]

    def _followed(
        self, connection: Session, stream: StreamSpec, table: Table, position: Position
    ) -> tuple[list[str], Publication, int]:
        """How to peek at the log after the position, which it must still have; through which publication; and its end."""
        name, published = self._slot(connection, stream), self._publication(connection, stream)
        publication = self._database.publication(connection, table, published)
        upper = self._database.end_of_log(connection)
        lost = why_lost(publication, self._database.slot(connection, name), position, upper)
        if publication is None or lost is not None:
            raise PositionLost(
                f"{stream.id}: the log at {self._database.target} lacks changes since the last run: {lost}. "
                "`tidemark stream run --full` reads everything and follows the log from there."
            )
        publication.refuse_partial(stream, published)
        return [name, lsn_text(upper), self._database.names([published])], publication, upper

    def _united(self, stream: StreamSpec, present: Columns, relations: list[Relation]) -> Shape:
        """The columns of now and those that the log has; a column's type is the last that the log has for it."""
        columns = {column[0]: column for column in present}
        types: dict[str, set[pa.DataType]] = {}
        for relation in relations:
            for name, number, modifier, _ in relation.columns:
                columns[name] = (name, number, modifier)
                types.setdefault(name, set()).add(arrow_type(number, modifier))
        return self._shape(stream, list(columns.values()), [name for name, several in types.items() if len(several) > 1])


def why_lost(publication: Publication | None, slot: ReplicationSlot | None, position: Position, upper: int) -> str | None:
    """Why the slot does not have everything from the position on, if so: nobody could know what is missing."""
    if slot is None or not slot.ours:
        return "the replication slot is not there"
    if slot.lost:
        return "the server has given the replication slot up, because it held too much of the log or idled too long"
    if slot.confirmed > position.lsn:
        return "the replication slot was moved beyond the committed position, or the state was set back"
    if upper < position.lsn:
        return "the log ends before the committed position, so the server was restored"
    if publication is None or publication.columns is None:
        return "the publication is gone, or the table is no longer in it"
    if position.member and position.member != publication.member:
        return "the table or its publication was re-created"
    return None
