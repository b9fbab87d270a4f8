"""Files that several threads of an engine read at once."""

import io
from pathlib import Path
from threading import Barrier, Thread

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from tidemark.lake import parquet
from tidemark.lake_s3 import SharedFile, SharedFiles

pytestmark = pytest.mark.fast

GROUPS, ROWS = 60, 25


class Remote(SharedFiles):
    """Files of a folder that DuckDB takes for remote ones."""

    protocol = "remote"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("remote://")


def test_a_file_of_many_row_groups_is_read_right_by_several_threads(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(ROWS)), "text": [f"text {n}" for n in range(ROWS)]})
    with pq.ParquetWriter(tmp_path / "file.parquet", table.schema) as writer:
        for _ in range(GROUPS):
            writer.write_table(table)
    for _ in range(25):
        with duckdb.connect() as db:
            db.execute("SET threads = 4; SET enable_external_file_cache = false")
            db.register_filesystem(Remote(LocalFileSystem()))
            read = parquet([f"remote://{tmp_path}/file.parquet"])
            counted = db.execute(f"SELECT count(*), sum(n), count(DISTINCT text) FROM {read}").fetchall()
        assert counted == [(GROUPS * ROWS, GROUPS * sum(range(ROWS)), ROWS)]


def test_each_thread_has_a_position_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    file, together, found = SharedFile(LocalFileSystem().open_input_file(str(tmp_path / "file"))), Barrier(2), {}

    def read(start: int) -> None:
        file.seek(start)
        together.wait()
        found[start] = file.read(10), file.tell()

    threads = [Thread(target=read, args=(start,)) for start in (20, 70)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {start: (bytes(range(start, start + 10)), start + 10) for start in (20, 70)}


def test_it_is_a_file_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    with SharedFile(LocalFileSystem().open_input_file(str(tmp_path / "file"))) as file:
        assert (file.size, file.seekable(), file.readable(), file.writable()) == (10, True, True, False)
        assert file.seek(-3, io.SEEK_END) == 7
        assert (file.read(), file.read(), file.read(5)) == (b"789", b"", b"")
        assert file.seek(2) == 2
        assert (file.read(2), file.seek(1, io.SEEK_CUR), file.read(None)) == (b"23", 5, b"56789")
    assert file.closed


def test_nothing_is_written_through_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only read"):
        Remote(LocalFileSystem()).open(f"remote://{tmp_path}/file", "wb")
