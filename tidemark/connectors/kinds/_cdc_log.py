"""Changes of a table in the log, peeked at through a slot: nothing here moves it.

Transactions come one after the other, in the order of their commits. One belongs to a slice if its commit lies there.
"""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from tidemark.connectors.contract import Slice
from tidemark.connectors.kinds._cdc_database import Database, Session, Table, read_lsn
from tidemark.connectors.kinds._cdc_pages import Found, Key, LogPages, Shape
from tidemark.connectors.kinds._pgoutput import Begin, Commit, NotPgoutput, Relation, Truncate, decoded
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import SourceError

# Messages that are fetched at once, and keys that are requested at once.
FETCHED = 2000
LOOKED_UP = 500

PEEK = "pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, NULL, 'proto_version', '1', 'publication_names', %s)"
MESSAGES = f"SELECT data FROM {PEEK}"
# How tables look and which of them are changed: Relation and Truncate as they are; of Delete, Insert and Update the letter
# and the table; each once, however long the log. A transaction is inside if its Begin, which has the commit's place, is.
OUTLINE = f"""
WITH message AS MATERIALIZED (
    SELECT n, data, get_byte(data, 0) AS kind FROM {PEEK} WITH ORDINALITY AS peeked (lsn, xid, data, n)),
inside AS (
    SELECT min(n) FILTER (WHERE substr(data, 2, 8) >= %s) AS first, min(n) FILTER (WHERE substr(data, 2, 8) >= %s) AS after
    FROM message WHERE kind = ascii('B'))
SELECT COALESCE(n >= first, false), CASE WHEN chr(kind) IN ('R', 'T') THEN data ELSE substr(data, 1, 5) END AS head
FROM message CROSS JOIN inside WHERE chr(kind) IN ('R', 'T', 'D', 'I', 'U') AND (after IS NULL OR n < after)
GROUP BY 1, 2 ORDER BY max(n)"""

# Truncate names its tables behind their number and its options.
CHANGED = f"""
SELECT EXISTS (SELECT FROM {PEEK} WHERE CASE
    WHEN chr(get_byte(data, 0)) IN ('D', 'I', 'U') THEN substr(data, 2, 4) = %s
    ELSE chr(get_byte(data, 0)) = 'T' AND position(%s IN substr(data, 7)) > 0 END)"""


def changed(database: Database, connection: Session, table: Table, peeked: list[str]) -> bool:
    """Whether a transaction that was not acknowledged changed the table. Nothing but that comes from the server."""
    number = table.number.to_bytes(4, "big")
    ((found,),) = database.ask(connection, CHANGED, *peeked, number, number)
    return bool(found)


def outlined(
    database: Database, connection: Session, table: Table, lower: int, upper: int, peeked: list[str]
) -> tuple[list[Relation], bool]:
    """How the table looked in the transactions between the bounds, and whether one of them changed it."""
    relations: list[Relation] = []
    before: list[Relation] = []
    changed = False
    bounds = (lower.to_bytes(8, "big"), upper.to_bytes(8, "big"))
    for inside, head in database.ask(connection, OUTLINE, *peeked, *bounds):
        parsed = decoded(head) if head[0] in b"RT" else None
        if isinstance(parsed, Relation):
            if parsed.table != table.number:
                continue
            if inside:
                relations.append(parsed)
            else:
                before = [parsed]  # a table is described once, and not again unless it was altered
        elif inside:
            touched = parsed.tables if isinstance(parsed, Truncate) else (int.from_bytes(head[1:5], "big"),)
            changed = changed or table.number in touched
    return [*before, *relations], changed


def read_log(database: Database, stream: StreamSpec, slice: Slice, shape: Shape, page_size: int) -> Iterator[pa.RecordBatch]:
    """Pages of the transactions in the slice. The slot may still have earlier ones, which were read before."""
    lower, upper, table = read_lsn(slice.lower or ""), read_lsn(slice.upper or ""), slice.detail["table"]
    pages = LogPages(shape, page_size, partial(_looked_up, database, stream))
    inside = False
    try:
        for message in _messages(database, stream, slice.detail["peeked"]):
            parsed = decoded(message)
            if isinstance(parsed, Begin):
                inside = lower <= parsed.commit < upper
                pages.begin(parsed.commit)
            elif isinstance(parsed, Relation):
                if parsed.table == table:
                    pages.described(parsed)
            elif parsed is None or isinstance(parsed, Commit) or not inside:
                continue
            elif table in parsed.tables if isinstance(parsed, Truncate) else parsed.table == table:
                pages.take(parsed, len(message))
                while pages.are_full:
                    yield pages.page()
        while pages.are_there:
            yield pages.page()
    except NotPgoutput as error:
        raise SourceError(f"{stream.id}: {error}.") from None


def _messages(database: Database, stream: StreamSpec, peeked: list[str]) -> Iterator[bytes]:
    """From a cursor at the server, so that a transaction may be larger than the memory here."""
    with (
        database.session(stream.id, autocommit=False) as connection,
        connection.cursor(name="tidemark", binary=True) as cursor,
    ):
        cursor.execute(MESSAGES.encode(), peeked)
        while True:
            database.pace()
            messages = cursor.fetchmany(FETCHED)
            for (message,) in messages:
                yield message
            if len(messages) < FETCHED:
                return


def _looked_up(database: Database, stream: StreamSpec, keys: list[Key], names: list[str]) -> Found:
    """Values of these fields as they are now, by key, as the texts that the log would have."""
    found: Found = {}
    width = len(stream.key)
    with database.session(stream.id) as connection:
        table = database.table(connection, stream)
        there = {name for name, *_ in database.columns(connection, table, None)}
        asked = [name for name in names if name in there]
        shown, key = database.names([*stream.key, *asked]), database.names(stream.key)
        for start in range(0, len(keys), LOOKED_UP):
            wanted = ", ".join(f"({database.texts(each)})" for each in keys[start : start + LOOKED_UP])
            database.pace()
            question = f"SELECT {shown} FROM {database.name(stream.source_name)} WHERE ({key}) IN ({wanted})"
            result = connection.execute(question.encode()).pgresult
            for row in range(result.ntuples if result else 0):
                values = [result.get_value(row, column) for column in range(width + len(asked))] if result else []
                own = tuple((value or b"").decode() for value in values[:width])
                found[own] = dict(zip(asked, values[width:], strict=True))
    return found
