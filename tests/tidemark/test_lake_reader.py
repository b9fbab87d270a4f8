"""The lake's second reader: one DuckDB for all, and none that is asked sees what another is doing."""

import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tidemark import lake
from tidemark.lake import LakeReader, LakeSettings

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
