import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.catalog.sources import EVERYTHING, TestedSource, read_all
from tidemark.catalog.packs import ColumnFacts, TableRef, pack_for
from tidemark.catalog.packs.sqlite import SqlitePack
from tidemark.catalog.scope import Scope
from tidemark.errors import SourceError, SourceUnreachable

pytestmark = pytest.mark.fast


def _columns(source: TestedSource, table: str) -> dict[str, ColumnFacts]:
    return {column.name: column for column in read_all(pack_for("sqlite", source.url))[f"main.{table}"].columns}


def test_every_fact_of_a_column_is_told(sqlite: TestedSource) -> None:
    sqlite.execute(
        "CREATE TABLE note (a integer, b varchar(20) NOT NULL DEFAULT 'x', c decimal(10, 2), d float(5),"
        " e integer GENERATED ALWAYS AS (a * 2) STORED, PRIMARY KEY (c, a))"
    )
    columns = _columns(sqlite, "note")
    assert columns["b"] == ColumnFacts("b", 2, "varchar(20)", 20, None, None, False, "'x'", None, None, ())
    assert columns["c"] == ColumnFacts("c", 3, "decimal(10, 2)", None, 10, 2, True, None, None, 1, ())
    assert columns["a"].primary_key == 2
    assert (columns["d"].precision, columns["d"].scale) == (5, None)
    assert columns["e"].default == "GENERATED ALWAYS STORED"


def test_foreign_keys_are_followed_as_sqlite_does(sqlite: TestedSource) -> None:
    sqlite.execute(
        'CREATE TABLE "Parent" ("Number" integer, "Code" integer, PRIMARY KEY ("Code", "Number"))',
        "CREATE TABLE child (a REFERENCES PARENT (number), b, c, d REFERENCES gone (id), e REFERENCES gone,"
        " FOREIGN KEY (b, c) REFERENCES parent, FOREIGN KEY (a) REFERENCES parent (code))",
    )
    columns = _columns(sqlite, "child")
    assert columns["a"].foreign_keys == (("main", "main", "Parent", "Code"), ("main", "main", "Parent", "Number"))
    assert columns["b"].foreign_keys == (("main", "main", "Parent", "Code"),)
    assert columns["c"].foreign_keys == (("main", "main", "Parent", "Number"),)
    assert columns["d"].foreign_keys == (("main", "main", "gone", "id"),)
    assert columns["e"].foreign_keys == ()


def test_a_view_that_no_longer_compiles_has_no_columns_and_stops_nothing(sqlite: TestedSource) -> None:
    sqlite.execute(
        "CREATE TABLE note (id integer)",
        "CREATE TABLE kept (id integer)",
        "CREATE VIEW seen AS SELECT id FROM note",
        "CREATE VIEW seen_twice AS SELECT id FROM seen",
        "CREATE VIEW fine AS SELECT id FROM kept",
        "CREATE VIEW strange AS SELECT no_such_function(id) FROM kept",
        "DROP TABLE note",
    )
    readings = read_all(pack_for("sqlite", sqlite.url))
    assert {name: len(reading.columns) for name, reading in readings.items()} == {
        "main.kept": 1,
        "main.seen": 0,
        "main.seen_twice": 0,
        "main.fine": 1,
        "main.strange": 0,
    }


def test_a_virtual_table_of_an_unknown_module_stops_nothing(sqlite: TestedSource) -> None:
    sqlite.execute(
        "CREATE TABLE note (id integer REFERENCES odd (id))",
        "PRAGMA writable_schema = ON",
        "INSERT INTO sqlite_master VALUES ('table', 'odd', 'odd', 0, 'CREATE VIRTUAL TABLE odd USING no_such_module')",
    )
    readings = read_all(pack_for("sqlite", sqlite.url))
    assert readings["main.odd"].columns == ()
    assert readings["main.note"].columns[0].foreign_keys == (("main", "main", "odd", "id"),)


def test_tables_of_sqlite_itself_are_left_out(sqlite: TestedSource) -> None:
    sqlite.execute("CREATE TABLE note (id integer PRIMARY KEY AUTOINCREMENT)", 'CREATE TABLE "sqliteish" (id)', "ANALYZE")
    assert set(read_all(pack_for("sqlite", sqlite.url))) == {"main.note", "main.sqliteish"}


def test_a_table_that_went_after_the_listing_is_told_apart_from_an_empty_one(sqlite: TestedSource) -> None:
    sqlite.execute("CREATE TABLE note (id integer)", "CREATE VIEW seen AS SELECT id FROM note")
    refs = [TableRef("main", "main", name) for name in ("seen", "note", "never")]
    sqlite.execute("DROP TABLE note")
    answers = list(pack_for("sqlite", sqlite.url).columns(refs))
    assert [ref for ref, _ in answers] == refs
    assert [reading and reading.columns for _, reading in answers] == [(), None, None]


def test_only_tables_in_scope_are_listed(sqlite: TestedSource) -> None:
    sqlite.execute("CREATE TABLE note (id)", "CREATE TABLE tmp_note (id)")
    listing = pack_for("sqlite", sqlite.url).listing(Scope(exclude=("*.tmp_*",)))
    assert [table.name for table in listing.tables] == ["note"]
    assert pack_for("sqlite", sqlite.url).listing(Scope(include=("other.*",))).schemas == ()


def test_a_missing_file_is_unreachable_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "gone.db"
    with pytest.raises(SourceUnreachable, match=r"there is no SQLite file .*gone\.db"):
        pack_for("sqlite", f"sqlite:///{path}").listing(EVERYTHING)
    assert not path.exists()


def test_nothing_can_be_written(sqlite: TestedSource) -> None:
    with pytest.raises(SourceError, match="readonly"), SqlitePack(sqlite.url)._snapshot() as connection:
        connection.execute("CREATE TABLE note (id)")


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(SourceError, match=r"letter\.db is not a SQLite database"):
        pack_for("sqlite", f"sqlite:///{path}").listing(EVERYTHING)


def test_a_database_that_is_being_written_is_named_after_a_wait(
    sqlite: TestedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlitePack, "lock_seconds", 0.05)
    with closing(sqlite3.connect(sqlite.url.removeprefix("sqlite:///"), isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceUnreachable, match="locked by somebody who writes"):
            pack_for("sqlite", sqlite.url).listing(EVERYTHING)


@pytest.mark.parametrize("name", ["with space.db", "per%20cent.db", "sharp#.db", "ünïcode🚀.db"])
def test_a_path_may_have_any_sign(tmp_path: Path, name: str) -> None:
    with closing(sqlite3.connect(tmp_path / name)) as connection:
        connection.execute("CREATE TABLE note (id)")
    listing = pack_for("sqlite", f"sqlite:///{tmp_path / name}").listing(EVERYTHING)
    assert [table.name for table in listing.tables] == ["note"]
    assert listing.identity == str((tmp_path / name).resolve())


def test_a_relative_path_starts_here(sqlite: TestedSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite.execute("CREATE TABLE note (id)")
    monkeypatch.chdir(tmp_path)
    listing = pack_for("sqlite", "sqlite:///source.db").listing(EVERYTHING)
    assert listing.identity == str(tmp_path.resolve() / "source.db")
    assert listing.clock.utcoffset() is not None


def test_a_name_that_is_not_utf8_stops_nothing(sqlite: TestedSource) -> None:
    with closing(sqlite3.connect(sqlite.url.removeprefix("sqlite:///"))) as connection:
        connection.execute("CREATE TABLE note (id DEFAULT 'here')")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'here', CAST(x'ff' AS TEXT))")
        connection.commit()
    assert _columns(sqlite, "note")["id"].default == r"'\xff'"
