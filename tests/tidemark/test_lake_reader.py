"""The lake's second reader: one DuckDB for all, and none that is asked sees what another is doing."""

from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

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


def test_one_engine_serves_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    started, connect = [], duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda: started.append(1) or connect())
    reader = LakeReader(LakeSettings({"warehouse": "/lake"}))
    with ThreadPoolExecutor(8) as several:
        list(several.map(lambda _: reader.connect().close(), range(50)))
    assert started == [1]
