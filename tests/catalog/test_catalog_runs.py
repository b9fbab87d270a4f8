"""First run, incremental run, and everything a table can become."""

import re

import orjson
import pytest

from spark_code.catalog.audit import audit
from tests.catalog.harness import Catalog, in_order
from tidemark.catalog.rows import Kind
from tidemark.errors import TooManyRemoved
from tidemark.publication import publish_branch


@pytest.fixture
def shop(catalog: Catalog) -> Catalog:
    catalog.source.execute(
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT 'nobody')",
        "CREATE TABLE invoice (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer (id), total NUMERIC(10, 2))",
        "CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT)",
        "CREATE VIEW debtor AS SELECT customer_id, total FROM invoice",
    )
    return catalog


def test_a_first_run_is_full_and_everything_is_created(shop: Catalog) -> None:
    record = shop.run()
    assert (record.status, record.mode, record.reason) == ("published", "full", "no state")
    assert set(shop.labels().values()) == {"CREATED"}
    assert shop.columns_of("customer") == ["id", "name"]
    assert shop.mirror() == in_order(shop.state())


def test_a_run_without_a_change_publishes_nothing_and_moves_the_marker(shop: Catalog) -> None:
    first = shop.run()
    second = shop.run()
    assert (second.status, second.mode) == ("unchanged", "incremental")
    assert second.snapshot == first.snapshot
    assert second.marker > first.marker
    assert shop.subject.marker.read().moment == shop.subject.published().recorded_marker
    assert set(shop.labels().values()) == {"NO CHANGE"}
    assert {e["attributes"]["incremental_state"] for e in shop.mirror()} == {"NO CHANGE"}


def test_only_the_columns_of_changed_tables_are_read(shop: Catalog) -> None:
    shop.run()
    shop.source.execute("ALTER TABLE customer ADD COLUMN email TEXT", "CREATE TABLE tag (name TEXT)", "DROP TABLE note")
    record = shop.run()
    assert record.detail["labels"] == {
        "CREATED": 1, "UPDATED": 1, "NO CHANGE": 2, "REMOVED": 1, "BACKFILL": 0, "UNKNOWN": 0, "schemas and databases": 0,
    }  # fmt: skip
    assert record.detail["rows"]["columns read"] == 4
    assert shop.labels() == {"customer": "UPDATED", "tag": "CREATED", "invoice": "NO CHANGE", "debtor": "NO CHANGE"}
    assert shop.columns_of("customer") == ["id", "name", "email"]
    assert shop.columns_of("note") == []


def test_the_mirror_follows_every_run(shop: Catalog) -> None:
    shop.run()
    shop.source.execute("ALTER TABLE note ADD COLUMN author TEXT")
    shop.run()
    assert shop.mirror() == in_order(shop.state())


def test_a_diff_tells_what_is_fresh_and_what_went(shop: Catalog) -> None:
    shop.run()
    shop.source.execute("ALTER TABLE note RENAME COLUMN body TO text", "DROP VIEW debtor")
    run_id = shop.run().run_id
    diff = shop.diff(run_id)
    assert diff["table"] == ["note"]
    assert diff["column"] == ["id", "text"]
    assert diff["delete/table"] == ["debtor"]
    assert diff["delete/column"] == ["customer_id", "total", "body"]
    assert diff["schema"] == ["main"]
    assert diff["database"] == ["main"]


def test_a_forced_full_run_reads_everything_and_ends_in_the_same_state(shop: Catalog) -> None:
    shop.run()
    shop.source.execute("ALTER TABLE note ADD COLUMN author TEXT")
    shop.run()
    incremental = shop.unlabelled()
    record = shop.run(full=True)
    assert (record.mode, record.reason) == ("full", "requested")
    assert shop.unlabelled() == incremental


def test_a_table_that_comes_into_scope_is_backfilled(shop: Catalog) -> None:
    shop.configure(exclude=["*.note"])
    shop.run()
    assert "note" not in shop.labels()
    shop.configure(exclude=[])
    shop.run()
    assert shop.labels()["note"] == "BACKFILL"
    assert shop.columns_of("note") == ["id", "body"]
    shop.run()
    assert shop.labels()["note"] == "NO CHANGE"


def test_a_table_that_goes_out_of_scope_is_removed(shop: Catalog) -> None:
    shop.run()
    shop.configure(exclude=["*.note"])
    record = shop.run()
    assert record.detail["labels"]["REMOVED"] == 1
    assert shop.columns_of("note") == []


def test_a_source_that_lists_no_table_stops_the_run(shop: Catalog) -> None:
    shop.run()
    before = shop.snapshot_of_everything()
    shop.source.execute("DROP VIEW debtor", "DROP TABLE invoice", "DROP TABLE note", "DROP TABLE customer")
    with pytest.raises(TooManyRemoved, match="4 of 4 tables"):
        shop.run()
    assert shop.snapshot_of_everything() == before
    shop.run(allow_removals=True)
    assert shop.state(Kind.TABLE) == []


def test_nothing_but_the_documented_layout_is_left_after_runs(shop: Catalog) -> None:
    first = shop.run().run_id
    shop.source.execute("ALTER TABLE note ADD COLUMN author TEXT")
    second = shop.run().run_id
    root = shop.subject.layout.root
    kept = {key.removeprefix(root + "/") for key in shop.objects()}
    assert kept == {
        "marker.txt",
        "current-state/_manifest.json",
        *(f"current-state/{kind}/{kind}_0.json" for kind in ("database", "schema", "table", "column")),
        f"runs/{first}/plan.json",
        f"runs/{first}/incremental-diff/metadata.json",
        *(f"runs/{first}/incremental-diff/{kind}/{kind}_0.json" for kind in ("database", "schema", "table", "column")),
        f"runs/{second}/plan.json",
        f"runs/{second}/incremental-diff/metadata.json",
        *(f"runs/{second}/incremental-diff/{kind}/{kind}_0.json" for kind in ("database", "schema", "table", "column")),
        *(f"runs/{second}/extracted/{asset}/_parts.json" for asset in ("databases", "schemas", "tables", "columns")),
        *(f"runs/{second}/extracted/{asset}/part_00000.parquet" for asset in ("databases", "schemas", "tables")),
        f"runs/{second}/extracted/staged.json",
        *(key for key in kept if re.fullmatch(rf"runs/{second}/extracted/columns/part_00000_\d+_00000.parquet", key)),
    }
    assert shop.subject.lake.reader.branches(shop.subject.layout.table) == {}


def test_upkeep_compares_everything_and_leaves_the_same_state_in_fewer_files(shop: Catalog) -> None:
    shop.run()
    for column in ("one", "two"):
        shop.source.execute(f"ALTER TABLE note ADD COLUMN {column} TEXT")
        shop.run()
    before, files = shop.state(), files_of(shop)
    assert shop.upkeep().success
    assert shop.state() == before
    assert shop.mirror() == in_order(before)
    assert files_of(shop) < files
    assert shop.run().status == "unchanged"


def test_what_another_version_left_is_not_compared_and_that_is_said(shop: Catalog) -> None:
    last = shop.run()
    store, key = shop.platform.store, f"{shop.subject.layout.extracted(last.run_id)}/staged.json"
    saved = orjson.loads(store.read(key))
    store.put(key, orjson.dumps({name: saved[name] for name in ("table", "run_id", "base", "snapshot")}))
    said = {result.name: result for result in audit(shop.subject)}
    assert all(result.passed for result in said.values())
    assert "another version" in said["last_merge_is_comparable"].summary
    assert shop.upkeep().success
    shop.source.execute("ALTER TABLE note ADD COLUMN author TEXT")
    shop.run()
    assert "last_merge_is_comparable" not in {result.name for result in audit(shop.subject)}


def test_a_full_check_after_a_run_without_a_change_looks_at_what_is_published_since(shop: Catalog) -> None:
    shop.run()
    shop.source.execute("ALTER TABLE note ADD COLUMN author TEXT")
    shop.run()
    assert shop.run().status == "unchanged"
    assert shop.upkeep().success
    assert [check.name for check in audit(shop.subject, whole=True) if not check.passed] == []
    # What upkeep must never do, and what nothing but this check would see.
    subject, lake = shop.subject, shop.subject.lake
    branch = lake.stage(subject.layout.table, "by-hand")
    lake.spark.sql(f"DELETE FROM {branch} WHERE qualified_name LIKE '%/customer/name'")
    publish_branch(lake.reader.existing(subject.layout.table), "by-hand", subject.published().snapshot)
    failed = {check.name for check in audit(subject, whole=True) if not check.passed}
    assert failed >= {"decision_matrix", "carried_unchanged", "counts_add_up"}


def test_upkeep_of_a_damaged_state_fails_and_touches_nothing(shop: Catalog) -> None:
    shop.run()
    shop.source.execute("ALTER TABLE note ADD COLUMN author TEXT")
    shop.run()
    key = f"{shop.subject.layout.current_state}/table/table_0.json"
    shop.platform.store.put(key, shop.platform.store.read(key).replace(b"note", b"nope"))
    before = shop.snapshot_of_everything() | {"files": files_of(shop)}
    result = shop.upkeep()
    assert not result.success
    assert "altered: table/table_0.json" in str(result.failure_data_for_node("keep_subject_up"))
    assert shop.snapshot_of_everything() | {"files": files_of(shop)} == before


def files_of(shop: Catalog) -> int:
    published = shop.subject.published().snapshot
    assert published is not None
    return len(shop.subject.lake.reader.files(shop.subject.layout.table, published).data)
