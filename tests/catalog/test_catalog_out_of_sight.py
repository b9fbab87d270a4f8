"""What a run cannot see: nothing of it is lost, and nothing of another source is kept."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from tests.catalog import troubled  # noqa: F401  (registers the packs)
from tests.catalog.harness import Catalog, SparkForTests, SqliteSource
from tests.services.children import KILLED, in_child
from tests.services.postgres import PostgresServer
from tidemark.catalog.marker import parse_marker


class ClockedShop:
    """A source whose only signal is a clock, and whose schema can be hidden."""

    def __init__(self, folder: Path, spark: SparkForTests) -> None:
        self.source = SqliteSource(folder / "shop.db")
        self._told: dict[str, object] = {"hidden": False, "changed": {}}
        self._tell()
        self.source.execute("CREATE TABLE note (a INTEGER)", "CREATE TABLE tag (a INTEGER)")
        clocked = {"app": "clocked", "url": self.source.url, "prepone-marker-timestamp": False}
        self.catalog = Catalog.make(folder, spark, self.source, clocked)

    def _tell(self) -> None:
        Path(f"{self.source.path}.clock").write_text(json.dumps(self._told))

    def hide(self, hidden: bool) -> None:
        self._told["hidden"] = hidden
        self._tell()

    def change(self, *statements: str) -> datetime:
        """Changes the table `note`, and the clock says when."""
        now = self.catalog.platform.clock.now()
        self.source.execute(*statements)
        self._told["changed"] = {"note": now.isoformat()}
        self._tell()
        return now

    def meddle(self, *statements: str) -> None:
        Path(f"{self.source.path}.meddling").write_text(json.dumps(statements))


@pytest.fixture
def clocked(tmp_path: Path, spark: SparkForTests) -> ClockedShop:
    return ClockedShop(tmp_path, spark)


def test_changes_made_while_a_schema_could_not_be_listed_are_found_when_it_can(clocked: ClockedShop) -> None:
    first = clocked.catalog.run()
    clocked.hide(True)
    clocked.change("ALTER TABLE note ADD COLUMN b INTEGER")
    hidden = clocked.catalog.run()
    assert hidden.detail["labels"]["UNKNOWN"] == 2
    again = clocked.catalog.run()
    schema = "default/clocked/1700000000/main/main"
    for run in (hidden, again):
        assert run.detail["unlisted"] == {schema: hidden.run_id}
        assert run.detail["last listed"] == {schema: first.marker}
    clocked.hide(False)
    clocked.catalog.run()
    assert clocked.catalog.labels() == {"note": "UPDATED", "tag": "NO CHANGE"}
    assert clocked.catalog.columns_of("note") == ["a", "b"]
    last = clocked.catalog.run()
    assert (last.status, last.detail["last listed"]) == ("unchanged", {})


def test_a_schema_whose_marker_is_not_known_is_compared_as_a_whole(clocked: ClockedShop) -> None:
    clocked.catalog.run()
    clocked.hide(True)
    clocked.change("ALTER TABLE note ADD COLUMN b INTEGER")
    marker = Path(clocked.catalog.platform.store.root) / clocked.catalog.subject.layout.marker
    marker.write_text("yesterday")
    hidden = clocked.catalog.run()
    assert (hidden.reason, list(hidden.detail["last listed"].values())) == ("corrupt marker", [None])
    clocked.hide(False)
    clocked.catalog.run()
    assert clocked.catalog.labels() == {"note": "UPDATED", "tag": "NO CHANGE"}


def test_a_change_that_could_not_be_read_is_not_forgotten_when_the_table_comes_back(clocked: ClockedShop) -> None:
    first = clocked.catalog.run()
    changed = clocked.change("ALTER TABLE note ADD COLUMN b INTEGER")
    clocked.meddle("ALTER TABLE note RENAME TO away")
    record = clocked.catalog.run()
    assert record.detail["labels"]["UNKNOWN"] == 1
    assert record.detail["last listed"] == {"default/clocked/1700000000/main/main/note": first.marker}
    clocked.source.execute("ALTER TABLE away RENAME TO note")  # this clock does not move by that
    assert changed < parse_marker(record.marker or "")
    clocked.catalog.run()
    assert clocked.catalog.labels() == {"note": "UPDATED", "tag": "NO CHANGE"}
    assert clocked.catalog.columns_of("note") == ["a", "b"]


@pytest.mark.fault
def test_a_killed_run_that_moved_the_marker_does_not_make_a_hidden_schema_seen(clocked: ClockedShop) -> None:
    clocked.catalog.run()
    clocked.hide(True)
    clocked.change("ALTER TABLE note ADD COLUMN b INTEGER")
    assert in_child(Catalog.run, clocked.catalog, TIDEMARK_FAULT="marker.after_swap") == KILLED
    clocked.hide(False)
    assert clocked.catalog.run().mode == "incremental"
    assert clocked.catalog.labels() == {"note": "UPDATED", "tag": "NO CHANGE"}


@pytest.mark.service
@pytest.mark.parametrize("forced", [False, True])
def test_nothing_of_the_old_server_is_carried_when_the_source_is_replaced(
    pg: PostgresServer, tmp_path: Path, spark: SparkForTests, forced: bool
) -> None:
    old, new = pg.new_database(), pg.new_database()
    role = f"reader_{old.rpartition('/')[2]}"
    pg.execute(pg.url(), f"CREATE ROLE {role} LOGIN PASSWORD 'let-me-in'")
    for url in (old, new):
        pg.execute(url, "CREATE TABLE a (x int)", "CREATE SCHEMA hidden", "CREATE TABLE hidden.b (x int)")
    pg.execute(old, f"GRANT USAGE ON SCHEMA hidden TO {role}")

    def login(url: str) -> str:
        return pg.url(url.rpartition("/")[2], role, "let-me-in")

    catalog = Catalog.make(tmp_path, spark, None, {"app": "postgresql", "url": login(old)})
    catalog.run()
    # The same name, so that qualified names meet: only the identity says that it is another database.
    pg.drop_database(old)
    pg.execute(pg.url(), f"ALTER DATABASE {new.rpartition('/')[2]} RENAME TO {old.rpartition('/')[2]}")
    record = catalog.run(full=forced)
    assert (record.mode, record.reason) == ("full", "requested" if forced else "source replaced")
    labels = {label: count for label, count in record.detail["labels"].items() if count}
    assert labels == {"CREATED": 1, "REMOVED": 1, "schemas and databases": 3}
    assert set(catalog.labels()) == {"a"}
    assert catalog.deleted_names(record.run_id) == ["b", "x"]
    pg.execute(old, f"GRANT USAGE ON SCHEMA hidden TO {role}")
    catalog.run()
    assert catalog.labels() == {"a": "NO CHANGE", "b": "BACKFILL"}
