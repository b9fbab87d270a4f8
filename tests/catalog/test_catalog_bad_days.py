"""Bad input and faults: a named error or a named reason, and nothing lost."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_code.catalog.rollback import rewind_marker
from tests.catalog import troubled  # noqa: F401  (registers the packs)
from tests.catalog.harness import Catalog, SparkForTests, SqliteSource, in_order
from tests.services.postgres import PostgresServer
from tidemark.catalog.marker import EARLIEST
from tidemark.catalog.rows import Kind
from tidemark.errors import ColumnBatchFailed, SourceRefused, UsageError


@pytest.fixture
def shop(catalog: Catalog) -> Catalog:
    catalog.source.execute("CREATE TABLE note (id INTEGER, body TEXT)", "CREATE TABLE tag (name TEXT)")
    catalog.run()
    return catalog


def marker_of(catalog: Catalog) -> Path:
    return Path(catalog.platform.store.root) / catalog.subject.layout.marker


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"yesterday", "corrupt marker"),
        (b"\xff\xfe", "corrupt marker"),
        (b"0001-01-01T00:00:00Z\n", "corrupt marker"),
        (b"2099-01-01T00:00:00Z\n", "marker in the future"),
        (None, "no marker"),
    ],
)
def test_a_marker_that_cannot_be_trusted_means_a_full_run_with_that_reason(
    shop: Catalog, content: bytes | None, reason: str
) -> None:
    if content is None:
        marker_of(shop).unlink()
    else:
        marker_of(shop).write_bytes(content)
    before = shop.unlabelled()
    record = shop.run()
    assert (record.mode, record.reason) == ("full", reason)
    assert shop.unlabelled() == before
    assert shop.run().mode == "incremental"


def test_a_marker_later_than_its_state_means_a_full_run(shop: Catalog) -> None:
    moment = shop.platform.clock.now().isoformat().replace("+00:00", "Z")
    marker_of(shop).write_text(moment + "\n")
    record = shop.run()
    assert (record.mode, record.reason) == ("full", "marker ahead of state")


def test_a_marker_cannot_be_rewound_beyond_the_first_day_of_computing(shop: Catalog) -> None:
    before = shop.snapshot_of_everything()
    with pytest.raises(UsageError, match="1970-01-02"):
        rewind_marker(shop.subject, datetime(1, 1, 1, tzinfo=UTC))
    assert shop.snapshot_of_everything() == before
    rewind_marker(shop.subject, EARLIEST)
    assert shop.subject.control.marks.audit(shop.subject.address)[0].kind == "rewind"
    assert shop.run().mode == "incremental"


def test_a_marker_in_the_ledger_that_cannot_be_one_means_a_full_run(shop: Catalog) -> None:
    subject = shop.subject
    snapshot = subject.published().snapshot
    assert snapshot
    read, expected = subject.marker.read(), subject.control.marks.version(subject.address)
    long_ago = datetime(1, 1, 1, tzinfo=UTC)
    subject.move_marker(read, long_ago, snapshot, None, "by an earlier version", expected=expected)
    record = shop.run()
    assert (record.mode, record.reason) == ("full", "corrupt marker")
    assert shop.run().mode == "incremental"


def test_with_the_flag_off_every_run_is_full(shop: Catalog) -> None:
    shop.configure(incremental_extraction=False)
    assert shop.run().reason == "incremental extraction is off"


def test_another_database_under_the_same_connection_means_a_full_run(shop: Catalog, tmp_path: Path) -> None:
    other = SqliteSource(tmp_path / "other.db")
    other.execute("CREATE TABLE note (id INTEGER, body TEXT)", "CREATE TABLE third (x TEXT)")
    shop.configure(url=other.url)
    record = shop.run()
    assert (record.mode, record.reason) == ("full", "source replaced")
    assert set(shop.labels()) == {"note", "third"}


@pytest.mark.parametrize("harm", ["deleted", "truncated", "manifest deleted", "stray"])
def test_a_damaged_mirror_is_made_anew_by_the_next_run(shop: Catalog, harm: str) -> None:
    folder = Path(shop.platform.store.root) / shop.subject.layout.current_state
    file = folder / "column" / "column_0.json"
    if harm == "deleted":
        file.unlink()
    elif harm == "truncated":
        file.write_bytes(file.read_bytes()[:-20])
    elif harm == "manifest deleted":
        (folder / "_manifest.json").unlink()
    else:
        (folder / "column" / "column_7.json").write_text("{}\n")
    shop.source.execute("ALTER TABLE tag ADD COLUMN colour TEXT")
    shop.run()
    assert shop.mirror() == in_order(shop.state())


def troubled_catalog(app: str, tmp_path: Path, spark: SparkForTests) -> Catalog:
    source = SqliteSource(tmp_path / "shop.db")
    source.execute("CREATE TABLE still (a INTEGER)", "CREATE TABLE going (a INTEGER)")
    return Catalog.make(tmp_path, spark, source, {"app": app, "url": source.url})


def test_a_table_dropped_between_listing_and_reading_is_not_in_the_state(tmp_path: Path, spark: SparkForTests) -> None:
    catalog = troubled_catalog("vanishing", tmp_path, spark)
    record = catalog.run()
    assert record.detail["vanished"] == 1
    assert set(catalog.labels()) == {"still"}
    assert catalog.columns_of("going") == []


def test_a_pack_that_does_not_answer_for_a_table_turns_a_check_red(tmp_path: Path, spark: SparkForTests) -> None:
    catalog = troubled_catalog("forgetful", tmp_path, spark)
    result = catalog.attempt()
    assert not result.success
    (verdict,) = [each for each in result.get_asset_check_evaluations() if each.check_name == "decision_matrix"]
    assert not verdict.passed
    assert "never read" in str(verdict.metadata["first"].value)
    assert catalog.subject.published().snapshot is None


def test_a_new_table_dropped_during_an_incremental_run_leaves_no_trace(tmp_path: Path, spark: SparkForTests) -> None:
    catalog = troubled_catalog("vanishing", tmp_path, spark)
    catalog.source.execute("DROP TABLE going")
    catalog.run()
    catalog.source.execute("CREATE TABLE going (a INTEGER)", "ALTER TABLE still ADD COLUMN b TEXT")
    record = catalog.run()
    assert (record.mode, record.detail["vanished"]) == ("incremental", 1)
    assert catalog.labels() == {"still": "UPDATED"}
    assert catalog.run().status == "unchanged"


def test_a_batch_that_fails_twice_is_read_at_the_third_attempt(tmp_path: Path, spark: SparkForTests) -> None:
    catalog = troubled_catalog("flaky", tmp_path, spark)
    Path(f"{catalog.source.path}.failures").write_text("2")
    assert catalog.run().status == "published"
    assert catalog.columns_of("going") == ["a"]


def test_a_batch_that_keeps_failing_fails_the_run_by_name_and_publishes_nothing(
    tmp_path: Path, spark: SparkForTests
) -> None:
    catalog = troubled_catalog("flaky", tmp_path, spark)
    Path(f"{catalog.source.path}.failures").write_text("99")
    with pytest.raises(ColumnBatchFailed, match="columns of 2 of 2 tables"):
        catalog.run()
    assert catalog.subject.published().snapshot is None
    assert catalog.objects() == []


@pytest.mark.service
def test_tables_of_a_schema_that_cannot_be_listed_are_unknown_not_removed(
    pg: PostgresServer, tmp_path: Path, spark: SparkForTests
) -> None:
    url = pg.new_database()
    name = url.rpartition("/")[2]
    pg.execute(
        url,
        f"CREATE ROLE reader_{name} LOGIN PASSWORD 'let-me-in'",
        "CREATE SCHEMA open", "CREATE TABLE open.a (x int)",
        "CREATE SCHEMA hidden", "CREATE TABLE hidden.b (x int, y int)",
        f"GRANT USAGE ON SCHEMA open, hidden TO reader_{name}",
    )  # fmt: skip
    login = {"app": "postgresql", "url": pg.url(name, f"reader_{name}", "let-me-in")}
    catalog = Catalog.make(tmp_path, spark, None, login)
    catalog.run()
    pg.execute(url, f"REVOKE USAGE ON SCHEMA hidden FROM reader_{name}", "ALTER TABLE open.a ADD COLUMN z int")
    first = catalog.run()
    assert first.detail["labels"]["UNKNOWN"] == 1
    assert first.detail["labels"]["REMOVED"] == 0
    assert catalog.columns_of("b") == ["x", "y"]
    again = catalog.run()
    assert list(again.detail["unlisted"].values()) == [first.run_id]  # since when
    pg.execute(url, f"GRANT USAGE ON SCHEMA hidden TO reader_{name}", "CREATE TABLE hidden.c (x int)")
    catalog.run()
    assert catalog.labels() == {"a": "NO CHANGE", "b": "NO CHANGE", "c": "BACKFILL"}

    catalog.configure(url=pg.url(name, f"reader_{name}", "wrong-canary"))
    before = catalog.snapshot_of_everything()
    with pytest.raises(SourceRefused) as refused:
        catalog.run()
    assert "wrong-canary" not in str(refused.value)
    assert catalog.snapshot_of_everything() == before


def test_awkward_names_come_through_whole(catalog: Catalog) -> None:
    awkward = ["a.b", "a/b", 'quo"te', "sp ace", "表", "🚀", "Case", "per%cent", "it's"]
    quoted = [name.replace('"', '""') for name in awkward]
    catalog.source.execute(*(f'CREATE TABLE "{name}" (id INTEGER, "c.{n}/x" TEXT)' for n, name in enumerate(quoted)))
    catalog.run()
    assert set(catalog.labels()) == set(awkward)
    for number, name in enumerate(awkward):
        assert catalog.columns_of(name) == ["id", f"c.{number}/x"]
    assert len({e["attributes"]["qualifiedName"] for e in catalog.state()}) == len(catalog.state())
    catalog.source.execute('ALTER TABLE "a/b" ADD COLUMN more TEXT')
    catalog.run()
    labels: dict[str, Any] = catalog.labels()
    assert [name for name, label in labels.items() if label != "NO CHANGE"] == ["a/b"]


def test_chunks_of_the_mirror_are_cut_to_size(catalog: Catalog) -> None:
    catalog.configure(column_chunk_size=10, copy_workers=2)
    catalog.source.execute(*(f"CREATE TABLE t{n} (a INTEGER, b INTEGER, c INTEGER)" for n in range(12)))
    catalog.run()
    files = [key for key in catalog.objects() if "/current-state/column/" in key]
    assert len(files) == 4
    catalog.source.execute("ALTER TABLE t3 ADD COLUMN d INTEGER")
    catalog.run()
    assert catalog.mirror() == in_order(catalog.state())
    assert all(check.passed for check in audit_of(catalog))
    assert len(catalog.state(Kind.COLUMN)) == 37


def audit_of(catalog: Catalog) -> list[Any]:
    from spark_code.catalog.audit import audit

    return audit(catalog.subject, whole=True)
