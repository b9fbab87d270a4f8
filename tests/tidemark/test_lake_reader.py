"""The lake's second reader: one DuckDB for all, and none that is asked sees what another is doing."""

import gc
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.services.children import in_child
from tidemark import lake
from tidemark.lake import LakeReader, LakeSettings, spill_folder

pytestmark = pytest.mark.fast


def test_tables_of_one_check_are_not_seen_by_another_at_the_same_time() -> None:
    reader = LakeReader(LakeSettings({"warehouse": "/lake"}))

    def counted(number: int) -> int:
        with reader.connect() as db:
            db.execute(f"CREATE TEMP TABLE facts AS SELECT * FROM range({number})")
            ((found,),) = db.execute("SELECT count(*) FROM facts").fetchall()
            return int(found)

    with ThreadPoolExecutor(8) as several:
        assert list(several.map(counted, range(100))) == list(range(100))
    with reader.connect() as db, pytest.raises(duckdb.CatalogException):
        db.execute("FROM facts")


def test_a_process_that_is_forked_has_an_engine_of_its_own_and_leaves_the_other_alone() -> None:
    assert in_child(_ask_in_a_fork) == 0


def _ask_in_a_fork() -> None:
    def asked(reader: LakeReader) -> int:
        with reader.connect() as db:
            return int(db.execute("SELECT sum(range) FROM range(1000000)").fetchall()[0][0])

    left = LakeReader(LakeSettings({"warehouse": "/lake"}))
    left.itself = left  # type: ignore[attr-defined]  # only the collector of garbage finds it
    expected = asked(left)
    del left
    child = os.fork()
    if not child:
        signal.alarm(20)
        gc.collect()
        os._exit(0 if asked(LakeReader(LakeSettings({"warehouse": "/lake"}))) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asked(LakeReader(LakeSettings({"warehouse": "/lake"}))) == expected


def test_one_engine_serves_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    started, connect = [], duckdb.connect
    monkeypatch.setattr(lake, "ENGINES", {})
    monkeypatch.setattr(duckdb, "connect", lambda: started.append(1) or connect())
    for place in ("/here", "/there"):
        reader = LakeReader(LakeSettings({"warehouse": place}))
        for _ in range(10):
            reader.connect().close()
    assert started == [1]


class RemoteFiles(MemoryFileSystem):
    """Files that DuckDB takes for remote ones, all of the same age."""

    protocol = "s3"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("s3://").lstrip("/")

    def modified(self, path: str) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


def test_a_check_looks_at_what_is_stored_and_not_at_what_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    files, reader = RemoteFiles(), LakeReader(LakeSettings({"warehouse": "s3://bucket/lake"}))
    monkeypatch.setattr(lake, "ENGINES", {})
    monkeypatch.setattr(lake, "s3_files", lambda _: files)

    def stored_and_read(value: int) -> list[tuple[int]]:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"a": [value] * 1000}), sink, compression="none", use_dictionary=False)
        files.pipe("s3://bucket/file.parquet", sink.getvalue().to_pybytes())
        with reader.connect() as db:
            return db.execute(f"SELECT sum(a) FROM {lake.parquet(['s3://bucket/file.parquet'])}").fetchall()

    assert [stored_and_read(1), stored_and_read(2)] == [[(1000,)], [(2000,)]]


def test_what_exceeds_the_memory_is_put_aside_where_nobody_else_reads_and_goes_with_the_process() -> None:
    asked = subprocess.run([sys.executable, "-c", PUT_ASIDE], capture_output=True, text=True, check=True).stdout.split()
    distinct, mode, files, folder = asked
    assert (distinct, mode) == ("3000000", "0o40700")
    assert int(files) > 0, "so much does not fit"
    assert not Path(folder).exists()


PUT_ASIDE = """
import os
from tidemark import lake

lake.ENGINE_MEMORY = "100MB"
with lake.LakeReader(lake.LakeSettings()).connect() as db:
    db.execute("CREATE TEMP TABLE large AS SELECT range AS n, md5(range::VARCHAR) AS text FROM range(3000000)")
    counted = db.execute("SELECT count(*) FROM (SELECT DISTINCT text FROM large)").fetchall()[0][0]
    folder = db.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
    print(counted, oct(os.stat(folder).st_mode), len(os.listdir(folder)), folder)
"""


@pytest.mark.fast
def test_rows_that_a_killed_process_put_aside_go_when_the_next_engine_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    left = tmp_path / f"tidemark-spill-{dead.stdout.strip()}-abc"
    mine = tmp_path / f"tidemark-spill-{os.getpid()}-abc"
    for folder in (left, mine):
        folder.mkdir()
    assert Path(spill_folder()).stat().st_mode & 0o777 == 0o700
    assert (left.exists(), mine.exists()) == (False, True)
