"""How a pack is found, and what all packs have in common."""

import pickle
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from tests.catalog.sources import duckdb_source, sqlite_source
from tidemark.catalog.packs import (
    DatabaseFacts,
    Listing,
    SchemaFacts,
    SourcePack,
    TableFacts,
    TableReading,
    TableRef,
    known_apps,
    pack_for,
)
from tidemark.catalog.packs import duckdb as duckdb_pack
from tidemark.catalog.packs import sqlite as sqlite_pack
from tidemark.catalog.packs.base import digest_of, object_id_of
from tidemark.catalog.scope import Scope
from tidemark.errors import ConfigError, DuplicateName

pytestmark = pytest.mark.fast

URLS = {
    "postgresql": "postgresql://shop:hunter2@db.example:6432/shop?sslpassword=hunter2",
    "sqlite": "sqlite:////data/shop.db?key=hunter2",
    "duckdb": "duckdb:////data/shop.duckdb?key=hunter2",
}


def test_the_packs_of_the_folder_are_known() -> None:
    assert set(URLS) <= set(known_apps())


def test_an_unknown_app_is_answered_with_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'postgres'.*duckdb.*postgresql, sqlite.*Did you mean 'postgresql'"):
        pack_for("postgres", "postgresql://localhost/shop")


def test_a_pack_registers_itself_by_naming_its_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourcePack, "_by_app", dict(SourcePack._by_app))
    pack = _made_up_pack()
    assert "made-up" in known_apps()
    assert type(pack_for("made-up", "made-up://here")) is pack


def test_a_pack_may_come_from_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere.py").write_text(
        "from tidemark.catalog.packs.sqlite import SqlitePack\nclass Elsewhere(SqlitePack):\n    app = 'elsewhere'\n"
    )
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tidemark.packs]\nelsewhere = elsewhere\nbroken = no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(SourcePack, "_by_app", dict(SourcePack._by_app))
    assert {"elsewhere", "broken"} <= set(known_apps())
    assert pack_for("elsewhere", "sqlite:///shop.db").app == "elsewhere"
    del sys.modules["elsewhere"]


@pytest.mark.parametrize("app", URLS)
def test_a_url_of_another_kind_is_refused_without_being_repeated(app: str) -> None:
    with pytest.raises(ConfigError, match=f"{app} connection must start with {app}://") as refused:
        pack_for(app, "mysql://shop:hunter2@localhost/shop")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "duckdb://", "duckdb:///:memory:"])
def test_a_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must name a file"):
        pack_for(url.partition(":")[0], url)


@pytest.mark.parametrize(("app", "url"), URLS.items())
def test_a_pack_travels_to_a_task_and_shows_no_secret(app: str, url: str) -> None:
    pack = pickle.loads(pickle.dumps(pack_for(app, url)))
    assert (pack.app, pack.url) == (app, url)
    assert "hunter2" not in repr(pack)
    assert "shop" in pack.target


def _table(schema: str, name: str) -> TableFacts:
    return TableFacts("db", schema, name, "table", "1", "d", None, None, 0)


def _listing(*tables: TableFacts) -> Listing:
    schema = SchemaFacts("db", "a", None, listed=True, why_not=None)
    return Listing("id", datetime(2026, 1, 1, tzinfo=UTC), (DatabaseFacts("db", None),), (schema,), tables)


def test_a_table_listed_twice_is_a_named_error() -> None:
    with pytest.raises(DuplicateName, match="db / a / note"):
        _listing(_table("a", "note"), _table("a", "memo"), _table("a", "note"))


def test_tables_whose_joined_names_are_equal_are_not_the_same() -> None:
    assert len(_listing(_table("a", "b.c"), _table("a.b", "c")).tables) == 2


def test_ids_made_of_names_are_unambiguous() -> None:
    names = [("a", "b.c"), ("a.b", "c"), ("a%2Eb", "c"), ("a", "b", "c"), ("a.b.c",)]
    assert len({object_id_of(*parts) for parts in names}) == len(names)


def test_a_digest_keeps_nothing_and_empty_apart() -> None:
    facts = [(None,), ("",), ("null",), ([],), (0,), ("0",), ("a", "b"), ("a,b",), (["a"], "b"), (["a", "b"],)]
    assert len({digest_of(*each) for each in facts}) == len(facts)


def _made_up_pack() -> type[SourcePack]:
    class MadeUpPack(SourcePack):
        app = "made-up"
        signal = "clock"
        schemes = ("made-up",)

        @staticmethod
        def target_of(url: str) -> str:
            return url

        def listing(self, scope: Scope, since: datetime | None = None) -> Listing:
            return _listing()

        def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
            return iter(())

    return MadeUpPack


@pytest.mark.parametrize("module", [duckdb_pack, sqlite_pack])
def test_a_listing_is_the_same_however_many_tables_are_looked_at_together(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = duckdb_source(tmp_path) if module is duckdb_pack else sqlite_source(tmp_path)
    source.execute(
        "CREATE TABLE t0 (id INTEGER PRIMARY KEY)",
        *(f"CREATE TABLE t{n} (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES t{n - 1} (id))" for n in range(1, 7)),
        "CREATE VIEW v AS SELECT id FROM t3",
    )
    pack = pack_for(source.app, source.url)
    at_once = pack.listing(Scope()).tables
    monkeypatch.setattr(module, "TABLES_AT_ONCE", 3)
    assert pack.listing(Scope()).tables == at_once
    assert len(at_once) == 8
