"""What a task makes of the tables it is asked for, without Spark."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from spark_code.catalog.columns import (
    ColumnReader,
    ColumnRequest,
    batch_count,
    requests_in,
    stretches,
    vanished_tables,
)
from spark_code.parts import Parts, PartsWriter, write_part
from tests.catalog.sources import EVERYTHING, sqlite_source
from tidemark.catalog.entities import EntityWriter, signal_of
from tidemark.catalog.packs import TableReading, TableRef
from tidemark.catalog.packs.sqlite import SqlitePack
from tidemark.catalog.rows import STATE_SCHEMA, VANISHED, Kind, Row, as_table
from tidemark.errors import SourceUnreachable
from tidemark.store import open_store

pytestmark = pytest.mark.fast

WRITER = EntityWriter("sqlite", "1")


class HalfwayPack(SqlitePack):
    """The first reading ends after one table."""

    requested: list[list[str]]

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        self.requested.append([table.name for table in tables])
        for number, answer in enumerate(super().columns(tables)):
            if number == 1 and len(self.requested) == 1:
                raise SourceUnreachable("the source went away")
            yield answer


def requests(*names: str) -> list[ColumnRequest]:
    return [ColumnRequest(TableRef("main", "main", name), "UPDATED") for name in names]


def short(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row.kind, row.qualified_name.split("/", 5)[5]) for row in rows]


def test_the_rows_of_tables_come_last_and_are_what_was_read(tmp_path: Path) -> None:
    source = sqlite_source(tmp_path)
    source.execute("CREATE TABLE a (x, y)", "CREATE TABLE b (z)")
    pack = SqlitePack(source.url)
    rows = list(ColumnReader(pack, WRITER, "run").rows(requests("a", "gone", "b"), 0))
    assert short(rows) == [
        (Kind.COLUMN, "a/x"), (Kind.COLUMN, "a/y"), (Kind.COLUMN, "b/z"),
        (Kind.TABLE, "a"), (VANISHED, "gone"), (Kind.TABLE, "b"),
    ]  # fmt: skip
    listed = {table.name: table for table in pack.listing(EVERYTHING).tables}
    for row in rows:
        if row.kind == Kind.TABLE:
            facts = listed[row.qualified_name.rpartition("/")[2]]
            assert (row.object_id, row.digest, row.entity) == (facts.object_id, signal_of(facts), WRITER.table(facts))


def test_after_a_failure_only_what_is_missing_is_read_and_no_row_comes_twice(tmp_path: Path) -> None:
    source = sqlite_source(tmp_path)
    source.execute("CREATE TABLE a (x)", "CREATE TABLE b (y)", "CREATE TABLE c (z)")
    pack = HalfwayPack(source.url)
    pack.requested = []
    rows = list(ColumnReader(pack, WRITER, "run", pause=0).rows(requests("a", "b", "c"), 0))
    assert pack.requested == [["a", "b", "c"], ["b", "c"]]
    assert short(rows) == [
        (Kind.COLUMN, "a/x"), (Kind.COLUMN, "b/y"), (Kind.COLUMN, "c/z"),
        (Kind.TABLE, "a"), (Kind.TABLE, "b"), (Kind.TABLE, "c"),
    ]  # fmt: skip


def row(kind: str, name: str, label: str = "UPDATED") -> Row:
    return Row(kind, 1, 0, name, name, None, None, label, "run", "{}")


def test_tables_that_were_gone_are_found_without_fetching_objects_that_name_none(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    rows = [[row(Kind.COLUMN, "a/x"), row(Kind.COLUMN, "a/y")], [row(Kind.TABLE, "a"), row(VANISHED, "c")]]
    written = [write_part(store, f"columns/part_{n}.parquet", as_table(some), "kind") for n, some in enumerate(rows)]
    store.delete("columns/part_0.parquet")
    columns = Parts(store, STATE_SCHEMA, tuple(written))
    assert vanished_tables(columns) == ["c"]
    assert (columns.rows, columns.count(Kind.COLUMN), columns.count(Kind.TABLE, VANISHED)) == (4, 2, 2)
    assert vanished_tables(Parts(store, STATE_SCHEMA, ())) == []


@pytest.mark.parametrize("batches", [1, 2, 3, 7, 20])
def test_every_fresh_table_is_in_one_batch_wherever_the_objects_end(tmp_path: Path, batches: int) -> None:
    store = open_store(str(tmp_path))
    tables = PartsWriter(store, STATE_SCHEMA, "tables", "label")
    labels = ["CREATED", "NO CHANGE", "UPDATED", "REMOVED", "BACKFILL"]
    names = [f"default/app/1/db/s/t{n}" for n in range(23)]
    for start in (0, 9, 10):
        some = range(start, {0: 9, 9: 10, 10: 23}[start])
        tables.add(as_table([row(Kind.TABLE, names[n], labels[n % 5]) for n in some]))
    cut = list(stretches(tables.written(), batches))
    read = [request.table.name for stretch in cut for request in requests_in(store, stretch)]
    assert read == [f"t{n}" for n in range(23) if labels[n % 5] in ("CREATED", "UPDATED", "BACKFILL")]
    sizes = Counter(each.batch for each in cut for _ in range(each.last - each.first))
    assert max(sizes.values()) - min(sizes.values()) <= 1


@pytest.mark.parametrize(
    ("tables", "size", "cores", "batches"),
    [(10, 100, 64, 1), (10_000, 25_000, 64, 20), (10_000, 25_000, 4, 4), (100_000, 1_000, 4, 100)],
)
def test_a_large_read_is_shared_by_all_cores(tables: int, size: int, cores: int, batches: int) -> None:
    assert batch_count(tables, size, cores) == batches
