"""A table as it was where the log of a new slot begins: cut by blocks, read in the snapshot that the slot exported."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from psycopg import errors

from tidemark.connectors.contract import Slice
from tidemark.connectors.kinds._cdc_database import Database, Session, Table, read_lsn
from tidemark.connectors.kinds._cdc_pages import PAGE_BYTES, Shape
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import SourceError

BLOCK = 8192
# A slice smaller than this, 16 MiB, is not worth a task of its own.
LEAST_BLOCKS = 2048


def block_ranges(table: Table, parallel: int) -> list[tuple[int, int | None]]:
    """From block to block, the last without an end. A row that the snapshot sees does not move from its block."""
    blocks = table.size // BLOCK
    count = max(1, min(parallel, blocks // LEAST_BLOCKS))
    cuts = [blocks * number // count for number in range(count)]
    return list(zip(cuts, [*cuts[1:], None], strict=True))


def read_snapshot(
    database: Database, stream: StreamSpec, slice: Slice, shape: Shape, page_size: int
) -> Iterator[pa.RecordBatch]:
    begin = read_lsn(slice.upper or "")
    if slice.number == 0:
        # What Bronze has of earlier times counts no more.
        yield shape.truncated(begin)
    with database.session(stream.id) as connection:
        database.tell(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        _enter(database, connection, stream, slice.detail)
        table = _unmoved(database, connection, stream, slice.detail)
        with connection.cursor().copy(_question(database, stream, shape, slice.detail, table).encode()) as rows:
            lines: list[bytes] = []
            size = 0
            for row in rows:
                lines.append(bytes(row))
                size += len(row)
                if len(lines) >= page_size or size >= PAGE_BYTES:
                    yield shape.snapshot_page(b"".join(lines), begin)
                    lines, size = [], 0
        if lines:
            yield shape.snapshot_page(b"".join(lines), begin)


def _enter(database: Database, connection: Session, stream: StreamSpec, detail: Mapping[str, Any]) -> None:
    try:
        database.tell(connection, f"SET TRANSACTION SNAPSHOT {database.texts([detail['snapshot']])}")
    except (errors.UndefinedObject, errors.InvalidParameterValue):
        raise SourceError(f"{stream.id}: the snapshot of this run is gone with its session. Run again.") from None


def _unmoved(database: Database, connection: Session, stream: StreamSpec, detail: Mapping[str, Any]) -> Table:
    """The table, if its rows still lie where they did: one that was rewritten looks empty to an older snapshot."""
    database.tell(connection, f"LOCK TABLE {database.name(stream.source_name)} IN ACCESS SHARE MODE")
    table = database.table(connection, stream)
    if table.storage != detail["storage"]:
        raise SourceError(
            f"{stream.id}: '{stream.source_name}' was truncated, rewritten or replaced while it was read. Run again."
        )
    return table


def _question(database: Database, stream: StreamSpec, shape: Shape, detail: Mapping[str, Any], table: Table) -> str:
    """CSV, in which everything but NULL is quoted: the same texts that the log has."""
    first, last = detail["blocks"]
    # Tables that inherit from this one have a log of their own; partitions do not.
    only = "ONLY " if table.kind == "r" else ""
    until = "" if last is None else f" AND ctid < '({last},0)'"
    rows = f"{only}{database.name(stream.source_name)} WHERE ctid >= '({first},0)'{until}"
    return f"COPY (SELECT {database.names(shape.names)} FROM {rows}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
