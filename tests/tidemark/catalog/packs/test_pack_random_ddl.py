"""Random sequences of DDL: whatever happens, a digest changes exactly if something it stands for changed."""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.catalog.sources import (
    TestedSource,
    assert_digests_tell_the_truth,
    duckdb_source,
    postgresql_source,
    read_all,
    sqlite_source,
)
from tests.services.postgres import PostgresServer
from tidemark.catalog.packs import pack_for

TABLES = st.sampled_from(["t", "u", '"T.u"'])
VIEWS = st.sampled_from(["v", "w"])
COLUMNS = st.sampled_from(["a", "b", '"C d"'])
TYPES = st.sampled_from(["integer", "bigint", "varchar(10)", "decimal(8, 3)"])
VALUES = st.sampled_from(["1", "2", "NULL"])
TEXTS = st.sampled_from(["'one'", "'two'", "''", "NULL"])


def _sql(template: str, **parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries(parts).map(lambda chosen: template.format(**chosen))


CREATE = "CREATE TABLE {t} ({a} {x}, {b} {y} DEFAULT {d}, PRIMARY KEY ({a}))"
REFER = "CREATE TABLE {t} ({a} {x}, {b} {x} REFERENCES {u} ({c}))"

DDL = st.one_of(
    _sql(CREATE, t=TABLES, a=COLUMNS, x=TYPES, b=COLUMNS, y=TYPES, d=VALUES),
    _sql(REFER, t=TABLES, a=COLUMNS, x=TYPES, b=COLUMNS, u=TABLES, c=COLUMNS),
    _sql("DROP TABLE {t}", t=TABLES),
    _sql("ALTER TABLE {t} RENAME TO {u}", t=TABLES, u=TABLES),
    _sql("ALTER TABLE {t} ADD COLUMN {a} {x} DEFAULT {d}", t=TABLES, a=COLUMNS, x=TYPES, d=VALUES),
    _sql("ALTER TABLE {t} DROP COLUMN {a}", t=TABLES, a=COLUMNS),
    _sql("ALTER TABLE {t} RENAME COLUMN {a} TO {b}", t=TABLES, a=COLUMNS, b=COLUMNS),
    _sql("ALTER TABLE {t} ALTER COLUMN {a} TYPE {x}", t=TABLES, a=COLUMNS, x=TYPES),
    _sql("ALTER TABLE {t} ALTER COLUMN {a} SET DEFAULT {d}", t=TABLES, a=COLUMNS, d=VALUES),
    _sql("ALTER TABLE {t} ALTER COLUMN {a} SET NOT NULL", t=TABLES, a=COLUMNS),
    _sql("ALTER TABLE {t} ADD PRIMARY KEY ({a})", t=TABLES, a=COLUMNS),
    _sql("ALTER TABLE {t} ADD FOREIGN KEY ({a}) REFERENCES {u} ({b})", t=TABLES, a=COLUMNS, u=TABLES, b=COLUMNS),
    _sql("COMMENT ON TABLE {t} IS {c}", t=TABLES, c=TEXTS),
    _sql("COMMENT ON COLUMN {t}.{a} IS {c}", t=TABLES, a=COLUMNS, c=TEXTS),
    _sql("CREATE VIEW {v} AS SELECT * FROM {t}", v=VIEWS, t=TABLES),
    _sql("CREATE VIEW {v} AS SELECT {a} AS x FROM {t}", v=VIEWS, a=COLUMNS, t=TABLES),
    _sql("DROP VIEW {v}", v=VIEWS),
    _sql("CREATE INDEX {v}_of_{a} ON {t} ({a})", v=VIEWS, a=st.sampled_from(["a", "b"]), t=TABLES),
    _sql("INSERT INTO {t} DEFAULT VALUES", t=TABLES),
)
# What does not fit the moment is refused by the database, and then nothing may have changed.
REFUSED = (sqlite3.Error, duckdb.Error, psycopg.Error)

START = (
    "CREATE TABLE t (a integer PRIMARY KEY, b integer)",
    "CREATE TABLE u (a integer, b integer)",
    "CREATE VIEW v AS SELECT * FROM u",
)


def _follow(source: TestedSource, statements: list[str]) -> None:
    pack = pack_for(source.app, source.url)
    source.execute(*START)
    before = read_all(pack)
    for statement in statements:
        with suppress(*REFUSED):
            source.execute(statement)
        after = read_all(pack)
        assert_digests_tell_the_truth(before, after)
        before = after


def _in_a_folder(make: Callable[[Path], TestedSource], statements: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _follow(make(Path(folder)), statements)


@pytest.mark.fast
@settings(max_examples=60, deadline=None)
@given(st.lists(DDL, min_size=3, max_size=12))
def test_sqlite_digests_tell_the_truth(statements: list[str]) -> None:
    _in_a_folder(sqlite_source, statements)


@settings(max_examples=15, deadline=None)
@given(st.lists(DDL, min_size=3, max_size=8))
def test_duckdb_digests_tell_the_truth(statements: list[str]) -> None:
    _in_a_folder(duckdb_source, statements)


@pytest.mark.service
@settings(max_examples=15, deadline=None)
@given(st.lists(DDL, min_size=3, max_size=12))
def test_postgresql_digests_tell_the_truth(pg: PostgresServer, statements: list[str]) -> None:
    source = postgresql_source(pg)
    _follow(source, statements)
    pg.drop_database(source.url)
