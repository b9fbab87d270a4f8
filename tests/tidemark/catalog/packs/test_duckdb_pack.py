import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.catalog.sources import EVERYTHING, TestedSource, read_all, sqlite_source
from tidemark.catalog.packs import ColumnFacts, TableRef, pack_for
from tidemark.catalog.scope import Scope
from tidemark.errors import SourceError, SourceUnreachable

HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def _columns(source: TestedSource, table: str) -> dict[str, ColumnFacts]:
    return {column.name: column for column in read_all(pack_for("duckdb", source.url))[table].columns}


def test_every_fact_of_a_column_is_told(duck: TestedSource) -> None:
    duck.execute(
        "CREATE TABLE note (a integer, b varchar NOT NULL DEFAULT 'x', c decimal(10, 2),"
        " e integer GENERATED ALWAYS AS (a * 2), PRIMARY KEY (c, a))",
        "COMMENT ON COLUMN note.b IS 'text of the note'",
    )
    columns = _columns(duck, "main.note")
    assert columns["b"] == ColumnFacts("b", 2, "VARCHAR", None, None, None, False, "'x'", "text of the note", None, ())
    assert columns["c"] == ColumnFacts("c", 3, "DECIMAL(10,2)", None, 10, 2, False, None, None, 1, ())
    assert (columns["a"].primary_key, columns["a"].precision) == (2, None)
    assert columns["e"].default == "GENERATED ALWAYS AS (CAST((a * 2) AS INTEGER))"


def test_keys_are_followed_whatever_the_case_they_were_typed_in(duck: TestedSource) -> None:
    duck.execute(
        "CREATE SCHEMA far",
        'CREATE TABLE far."Parent" ("Number" integer, "Code" integer, PRIMARY KEY (CODE, number))',
        "CREATE TABLE far.child (x integer, y integer, FOREIGN KEY (X, Y) REFERENCES far.PARENT (code, NUMBER))",
    )
    parent = _columns(duck, "far.Parent")
    assert (parent["Code"].primary_key, parent["Number"].primary_key) == (1, 2)
    child = _columns(duck, "far.child")
    assert child["x"].foreign_keys == (("source", "far", "Parent", "Code"),)
    assert child["y"].foreign_keys == (("source", "far", "Parent", "Number"),)


def test_letters_beyond_ascii_are_not_folded(duck: TestedSource) -> None:
    duck.execute('CREATE TABLE note ("É" integer, "é" integer, PRIMARY KEY ("é"))')
    columns = _columns(duck, "main.note")
    assert (columns["É"].primary_key, columns["é"].primary_key) == (None, 1)


def test_the_database_is_named_after_its_file_and_only_its_own_things_are_listed(duck: TestedSource) -> None:
    duck.execute("CREATE SCHEMA far", "CREATE TABLE far.note (id integer)", "CREATE MACRO fold(x) AS x")
    listing = pack_for("duckdb", duck.url).listing(EVERYTHING)
    assert [database.name for database in listing.databases] == ["source"]
    assert [schema.name for schema in listing.schemas] == ["far", "main"]
    assert [(table.schema, table.name) for table in listing.tables] == [("far", "note")]
    assert listing.clock.utcoffset() is not None


def test_only_what_is_in_scope_is_listed(duck: TestedSource) -> None:
    duck.execute("CREATE SCHEMA far", "CREATE TABLE far.note (id integer)", "CREATE TABLE note (id integer)")
    listing = pack_for("duckdb", duck.url).listing(Scope(include=("far.*",)))
    assert [schema.name for schema in listing.schemas] == ["far"]
    assert [table.schema for table in listing.tables] == ["far"]


def test_a_table_that_went_after_the_listing_is_told(duck: TestedSource) -> None:
    duck.execute("CREATE TABLE note (id integer)")
    refs = [TableRef("source", "main", "gone"), TableRef("source", "main", "note")]
    (_, gone), (_, there) = pack_for("duckdb", duck.url).columns(refs)
    assert gone is None
    assert there is not None
    assert [column.name for column in there.columns] == ["id"]


def test_a_missing_file_is_unreachable_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "gone.duckdb"
    with pytest.raises(SourceUnreachable, match=r"gone\.duckdb"):
        pack_for("duckdb", f"duckdb:///{path}").listing(EVERYTHING)
    assert not path.exists()


def test_a_file_of_another_kind_is_named_and_nothing_is_fetched_to_read_it(tmp_path: Path) -> None:
    other = sqlite_source(tmp_path).url.removeprefix("sqlite:///")
    with pytest.raises(SourceError, match=r"source\.db is not a DuckDB database"):
        pack_for("duckdb", f"duckdb:///{other}").listing(EVERYTHING)


def test_a_database_locked_by_another_process_is_named(duck: TestedSource) -> None:
    path = duck.url.removeprefix("duckdb:///")
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(SourceUnreachable, match="locked by another process that writes"):
            pack_for("duckdb", duck.url).listing(EVERYTHING)
        holder.communicate()


def test_a_database_open_for_writing_in_this_process_is_named(duck: TestedSource) -> None:
    with (
        duckdb.connect(duck.url.removeprefix("duckdb:///")),
        pytest.raises(SourceUnreachable, match="open for writing in this process"),
    ):
        pack_for("duckdb", duck.url).listing(EVERYTHING)
