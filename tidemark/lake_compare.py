"""Whether two snapshots of a table hold the same rows, read by pyiceberg and DuckDB: only files that differ are read."""

from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import FileScanTask, Table

# Order does not count, repetitions do: a sum of hashes, a second one with another seed, and the number of rows.
# Of texts: DuckDB's own hash of nested values takes NULL, [] and [NULL] for the same.
DIGEST = """SELECT count(*), sum(hash(r)::HUGEINT), sum(hash(r || ' ')::HUGEINT)
            FROM (SELECT to_json(rows)::VARCHAR AS r FROM rows)"""


def same_rows(table: Table, before: int, after: int) -> tuple[int, bool]:
    """How many rows lie in files that the two do not share, and whether they are the same rows."""
    gone, came = _differing(table, before, after)
    was, now = _digest(table, gone), _digest(table, came)
    return now[0], was == now


def changed_rows(table: Table, before: int, after: int) -> tuple[int, int]:
    """How many rows the later snapshot has and the earlier has not, and the other way round, by the columns of now.

    By their content: a row that was only written to another file is neither.
    """
    gone, came = _differing(table, before, after)
    with duckdb.connect() as db:
        db.execute("CREATE TABLE hashes (came BOOLEAN, first UBIGINT, second UBIGINT)")
        for side, tasks in ((False, gone), (True, came)):
            for rows in _read(table, tasks):
                db.register("rows", rows)
                db.execute("INSERT INTO hashes SELECT ?, hash(r), hash(r, 'second') FROM rows AS r", [side])
                db.unregister("rows")
        counted = "SELECT count(*) FILTER (came) - count(*) FILTER (NOT came) AS more FROM hashes GROUP BY first, second"
        sums = f"SELECT sum(greatest(more, 0)), sum(greatest(-more, 0)) FROM ({counted})"
        added, removed = db.execute(sums).fetchall()[0]
    return int(added or 0), int(removed or 0)


def _differing(table: Table, before: int, after: int) -> tuple[list[FileScanTask], list[FileScanTask]]:
    """What is to be read of files that only the earlier, and that only the later snapshot has."""
    old, new = ({_key(task): task for task in table.scan(snapshot_id=each).plan_files()} for each in (before, after))
    return [old[key] for key in old.keys() - new.keys()], [new[key] for key in new.keys() - old.keys()]


def _key(task: FileScanTask) -> tuple[str, frozenset[str]]:
    return task.file.file_path, frozenset(file.file_path for file in task.delete_files)


def _digest(table: Table, tasks: Iterable[FileScanTask]) -> tuple[int, int, int]:
    """The digest of the rows of some files, one file in memory at a time."""
    total = (0, 0, 0)
    with duckdb.connect() as db:
        for rows in _read(table, tasks):
            db.register("rows", rows)
            count, first, second = db.execute(DIGEST).fetchall()[0]
            db.unregister("rows")
            total = total[0] + count, total[1] + int(first or 0), total[2] + int(second or 0)
    return total


def _read(table: Table, tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatchReader]:
    """The rows of each file, in the columns that the table has now."""
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for task in tasks:
        batches = (batch.cast(schema) for batch in scan.to_record_batches([task]))
        yield pa.RecordBatchReader.from_batches(schema, batches)
