"""Upkeep publishes what is compared and the same, and touches nothing where the catalogue cannot be trusted."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from tidemark.clock import ManualClock
from tidemark.config import load_config
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import ChecksFailed
from tidemark.lake_names import branch_of
from tidemark.platform import Platform
from tidemark.publication import claim, discard_left, visible
from tidemark.runs import Confirm, Visible
from tidemark.runs.subject import SimpleSubject
from tidemark.runs.upkeep import TableUpkeep, keep_up

pytestmark = pytest.mark.fast
TABLE, ADDRESS = "shop.lines", "feed/lines"


@dataclass(frozen=True)
class Lines(SimpleSubject):
    """A table of numbers, three files of it."""

    platform: Platform
    address: str = ADDRESS

    @property
    def control(self) -> ControlDatabase:
        return self.platform.control

    def visible(self) -> Visible | None:
        return visible(self.platform.reader, TABLE)

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> dict[str, Any]:
        return {}

    def fence(self, run: RunRecord) -> None: ...

    def undo(self, run: RunRecord) -> None:
        discard_left(self.platform.reader, TABLE, list)

    def upkeep(self, keep_runs: int) -> list[TableUpkeep]:
        return [TableUpkeep(TABLE, "id", frozenset())]

    @property
    def rows(self) -> list[int]:
        return sorted(self.platform.reader.existing(TABLE).scan().to_arrow()["id"].to_pylist())

    @property
    def files(self) -> int:
        return len(list(self.platform.reader.existing(TABLE).scan().plan_files()))

    @property
    def objects(self) -> set[str]:
        return {info.key for info in self.platform.store.list("lake")}


@dataclass
class Compactor:
    """One file for all, by pyiceberg; `loses` numbers are left out."""

    lines: Lines
    loses: frozenset[int] = frozenset()
    called: list[str] = field(default_factory=list)

    def compact(self, table: str, run_id: str, order: str, summary: Mapping[str, str]) -> dict[str, int]:
        self.called.append("compact")
        found = self.lines.platform.reader.existing(table)
        claim(found, run_id)
        rows = pa.table({"id": pa.array([each for each in self.lines.rows if each not in self.loses], pa.int64())})
        self.lines.platform.reader.existing(table).overwrite(rows, branch=branch_of(run_id))
        return {}

    def expire(self, table: str, kept: frozenset[int]) -> int:
        self.called.append("expire")
        found = self.lines.platform.reader.existing(table)
        head = found.metadata.current_snapshot_id
        gone = [each.snapshot_id for each in found.snapshots() if each.snapshot_id != head]
        found.maintenance.expire_snapshots().by_ids(gone).commit()
        return len(gone)


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "store"}))
    platform = Platform(load_config(tmp_path / "tidemark.yaml"), clock=ManualClock(datetime.now(UTC)))
    (tmp_path / "store").mkdir()
    made = SqlCatalog("lake", **{**platform.lake_settings.for_python(), "init_catalog_tables": "true"})
    made.create_namespace("shop")
    table = made.create_table(TABLE, pa.schema([("id", pa.int64())]))
    for number in (1, 2, 3):
        table.append(pa.table({"id": pa.array([number], pa.int64())}))
    return Lines(platform)


def test_the_same_rows_in_fewer_files_are_published(lines: Lines) -> None:
    done = keep_up(lines, Compactor(lines))
    assert (done.status, done.detail["upkeep"][TABLE]["rows compared"]) == ("published", 3)
    assert (lines.files, lines.rows) == (1, [1, 2, 3])


def test_a_compaction_that_loses_a_row_is_not_published(lines: Lines) -> None:
    files = lines.files
    with pytest.raises(ChecksFailed, match="compaction_keeps_rows"):
        keep_up(lines, Compactor(lines, frozenset({2})))
    assert (lines.files, lines.rows) == (files, [1, 2, 3])
    assert lines.platform.reader.branches(TABLE) == {}
    (failed,) = lines.control.runs.history(ADDRESS)
    assert (failed.status, failed.mode) == ("failed", "upkeep")


def test_a_table_with_metadata_that_the_catalogue_does_not_know_is_neither_compacted_nor_expired_nor_swept(
    lines: Lines, tmp_path: Path
) -> None:
    """The catalogue's database is an older copy: what it would expire may be in use."""
    database = Path(lines.platform.lake_settings.for_python()["uri"].removeprefix("sqlite:///"))
    shutil.copy(database, tmp_path / "old.db")
    newer = lines.platform.reader.existing(TABLE)
    newer.append(pa.table({"id": pa.array([4], pa.int64())}))
    shutil.copy(tmp_path / "old.db", database)
    again = Lines(Platform(lines.platform.config, clock=ManualClock(datetime.now(UTC) + timedelta(days=30))))
    assert again.rows == [1, 2, 3], "it is the older one"
    before, compactor = again.objects, Compactor(again)
    done = keep_up(again, compactor, keep_runs=1)
    assert compactor.called == []
    assert "the catalogue does not know" in done.detail["upkeep"][TABLE]["left alone"]
    assert again.objects == before
