"""The quarantine takes a record once for each reason, however often it is read."""

from collections.abc import Iterable
from uuid import uuid4

from pyiceberg.io.pyarrow import PyArrowFileIO

from spark_code.connectors.slices import QUARANTINE, ParquetFiles
from spark_code.connectors.subject import StreamSubject
from tidemark.lake import parquet, plain_path

MARK = "md5(concat_ws(chr(0), reason, record))"
BATCH = 1000


def not_yet_held(subject: StreamSubject, files: Iterable[str]) -> tuple[str, ...]:
    """Files with those rows of these whose record and reason the table does not have, each once.

    DuckDB compares hashes, so that no more than those are held in memory.
    """
    given = tuple(files)
    if not given:
        return ()
    reader, table = subject.platform.lake.reader, subject.quarantine.table
    assert table is not None, "prepared before"
    published = reader.published(subject.place.quarantine)
    rows = parquet(map(plain_path, given), "filename = true, file_row_number = true")
    new = f"SELECT {MARK} AS mark, min((filename, file_row_number)) AS first FROM {rows} GROUP BY mark"
    if published is not None:
        held = reader.files(subject.place.quarantine, published.snapshot_id).evolving_sql
        new = f"SELECT * FROM ({new}) ANTI JOIN (SELECT {MARK} AS mark FROM {held}) USING (mark)"
    with reader.connect() as db:
        db.execute(f"CREATE TEMP TABLE new AS {new}")
        ((count, read),) = db.sql(f"SELECT (SELECT count(*) FROM new), (SELECT count(*) FROM {rows})").fetchall()
        if count == read:
            return given
        io_ = PyArrowFileIO(subject.platform.lake_settings.for_python())
        fresh = ParquetFiles(io_, f"{table.location()}/data/{uuid4()}", QUARANTINE)
        chosen = (
            f"SELECT {', '.join(QUARANTINE.names)} FROM {rows} WHERE (filename, file_row_number) IN (SELECT first FROM new)"
        )
        for batch in db.sql(chosen).to_arrow_reader(BATCH):
            fresh.write(batch.cast(QUARANTINE))
        return fresh.close()
