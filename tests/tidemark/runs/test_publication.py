"""Which run published what readers see: the table's own record, as far as the table has not been taken back since."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from tidemark.lake import MAIN, LakeReader, LakeSettings
from tidemark.publication import Publication, claim, contents_of, discard, publish, visible

pytestmark = pytest.mark.fast
NAME = "shop.lines"


class Lines:
    """A table of numbers."""

    def __init__(self, folder: Path) -> None:
        properties = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/lake.db", "warehouse": str(folder / "warehouse")}
        self.reader = LakeReader(LakeSettings(properties))
        SqlCatalog("lake", **{**self.reader.settings.for_python(), "init_catalog_tables": "true"})
        self.reader.catalog.create_namespace("shop")
        self.reader.catalog.create_table(NAME, pa.schema([("id", pa.int64())]))

    @property
    def table(self) -> Table:
        return self.reader.existing(NAME)

    @property
    def head(self) -> int | None:
        snapshot = self.table.current_snapshot()
        return snapshot.snapshot_id if snapshot else None

    def append(self, number: int) -> None:
        """As somebody else would."""
        self.table.append(pa.table({"id": pa.array([number], pa.int64())}))

    def published_by(self, run_id: str, number: int | None = None, **more: Any) -> int | None:
        """A run that adds a number; without one it leaves the rows as they are."""
        base, branch = self.head, claim(self.table, run_id)
        contents = None
        if number is not None:
            assert branch is not None
            self.table.append(pa.table({"id": pa.array([number], pa.int64())}), branch=branch)
            staged = self.table.snapshot_by_name(branch)
            assert staged is not None
            contents = contents_of(self.table, staged)
        return publish(self.table, Publication(run_id, base, contents, branch=branch, **more))

    def taken_back_to(self, snapshot: int | None) -> None:
        """As `CALL rollback_to_snapshot` does."""
        assert snapshot is not None
        self.table.manage_snapshots().create_branch(snapshot, MAIN).commit()
        assert self.head == snapshot

    @property
    def by(self) -> str | None:
        seen = visible(self.reader, NAME)
        return seen.run_id if seen else None


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    made = Lines(tmp_path)
    made.append(1)
    return made


def test_a_publication_that_was_taken_back_counts_as_none(lines):
    first = lines.published_by("one", 2)
    lines.published_by("two", 3, record={"marker": "later"})
    assert lines.by == "two"
    lines.taken_back_to(first)
    seen = visible(lines.reader, NAME)
    assert (seen.run_id, seen.snapshot, dict(seen.record)) == ("one", first, {})
    lines.append(9)
    assert lines.by != "two", "what somebody adds afterwards does not bring it back"


def test_a_publication_that_somebody_added_to_still_counts(lines):
    lines.published_by("one", 2)
    lines.append(3)
    seen = visible(lines.reader, NAME)
    assert (seen.run_id, seen.snapshot) == ("one", lines.head)


def test_a_publication_of_columns_alone_counts_until_its_rows_are_taken_back(lines):
    before = lines.head
    lines.published_by("one", 2)
    fields = (*lines.table.schema().fields, NestedField(2, "more", LongType(), required=False))
    lines.published_by("two", schema=Schema(*fields))
    assert lines.by == "two"
    lines.taken_back_to(before)
    assert lines.by is None


@pytest.mark.parametrize("damage", ["list gone", "list torn", "manifest gone", "manifest torn"])
def test_a_branch_with_damaged_files_is_dropped_all_the_same(lines, damage):
    """Nothing reads it any more: to list its files is only good for removing them."""
    branch = claim(lines.table, "dead")
    lines.table.append(pa.table({"id": pa.array([2], pa.int64())}), branch=branch)
    staged = lines.table.snapshot_by_name(branch)
    path = staged.manifest_list if damage.startswith("list") else staged.manifests(lines.table.io)[0].manifest_path
    file = Path(path.removeprefix("file://"))
    file.unlink() if damage.endswith("gone") else file.write_bytes(b"")
    discard(lines.table, branch)
    assert lines.reader.branches(NAME) == {}
    assert lines.table.scan().to_arrow()["id"].to_pylist() == [1]
