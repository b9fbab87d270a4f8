"""Nothing grows for ever: after 300 runs there is no more than after 100, in Dagster's storage, the store and the ledger."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    DagsterInstance,
    Definitions,
    JobDefinition,
    MaterializeResult,
    asset,
    define_asset_job,
    in_process_executor,
)

from platform_assets.launch import QUIET
from platform_assets.retention import delete_old_runs
from resources.tags import subject_tags
from tests.runs.toy import Sum, add_up
from tidemark.clock import ManualClock
from tidemark.config import load_config
from tidemark.platform import Platform
from tidemark.runs.upkeep import keep_up

RUNS, FIRST, A_FEW = 300, 100, 25
# Two processes for every step; `test_retention.py` has them.
NO_COMPUTE_LOGS = {
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
}
# Append-only on purpose, a short row for each move of a mark: triggers refuse to delete from it.
AUDIT = "tidemark_mark_audit"


@dataclass(frozen=True)
class Amount:
    """How much there is."""

    rows: dict[str, int]
    files: int
    size: int


class Grown:
    """The toy system in an instance of Dagster, both in one folder."""

    def __init__(self, folder: Path, instance: DagsterInstance) -> None:
        self.folder, self.instance, self.clock = folder, instance, ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "retention": {"runs": 20, "days": 1}}))
        (folder / "source.txt").write_text("")
        self.config = load_config(folder / "tidemark.yaml")
        self.subject = Sum(Platform(self.config, clock=self.clock))
        self.job = self._job()
        self.runs = 0
        self.first = Amount({}, 0, 0)

    def _job(self) -> JobDefinition:
        @asset(check_specs=[AssetCheckSpec("is_right", asset="numbers")])
        def numbers(context: AssetExecutionContext) -> MaterializeResult:  # type: ignore[type-arg]
            add_up(self.subject, context.run.run_id, dagster_run=context.run.run_id)
            return MaterializeResult(check_results=[AssetCheckResult(passed=True)])

        job = define_asset_job("toy", [numbers])
        return Definitions([numbers], jobs=[job], executor=in_process_executor).resolve_job_def("toy")

    def run_up_to(self, runs: int) -> None:
        while self.runs < runs:
            self.runs += 1
            self.run(self.runs)
            if self.runs % A_FEW == 0:
                self.keep_up()
            if self.runs == FIRST:
                self.first = Amount(self.rows, len(self.files), self.size)

    def run(self, number: int) -> None:
        if number % 2:  # every other run finds nothing new
            with (self.folder / "source.txt").open("a") as source:
                source.write(f"{number}\n")
        self.clock.advance(timedelta(hours=1))
        tags = subject_tags([self.subject.address])
        assert self.job.execute_in_process(instance=self.instance, tags=tags, run_config=QUIET).success

    def keep_up(self) -> None:
        keep_up(self.subject, None, keep_runs=5)  # type: ignore[arg-type]
        delete_old_runs(self.instance, self.config.retention, datetime.now(UTC) + timedelta(days=2))

    @property
    def files(self) -> list[Path]:
        """All but the source, and journals, which databases cut off as they like."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and path.name != "source.txt")
        return [path for path in found if not path.name.endswith(("-wal", "-shm", "-journal"))]

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    @property
    def rows(self) -> dict[str, int]:
        """The rows of every table of every database that is not of a single run."""
        counted = {}
        for path in (each for each in self.files if each.suffix == ".db" and len(each.stem) != 36):
            with closing(sqlite3.connect(path)) as database:
                tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                for name in tables:
                    counted[f"{path.stem}.{name}"] = database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
        return counted


@pytest.fixture(scope="module")
def grown() -> Iterator[Grown]:
    """In memory where there is such a folder: thousands of small transactions would wait for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        (folder / "dagster").mkdir()
        with DagsterInstance.local_temp(str(folder / "dagster"), overrides=NO_COMPUTE_LOGS) as instance:
            yield Grown(folder, instance)


@pytest.mark.parametrize("runs", range(A_FEW, RUNS + 1, A_FEW))
def test_after_many_runs_there_is_no_more_than_after_the_first_hundred(grown: Grown, runs: int) -> None:
    """A part of the runs each: no test may take minutes."""
    grown.run_up_to(runs)
    if runs < FIRST:
        return
    first, rows = grown.first, grown.rows
    assert rows.pop(f"control.{AUDIT}") == (runs + 1) // 2, "every other run moves the mark"
    assert {name: (first.rows[name], count) for name, count in rows.items() if count > first.rows[name]} == {}
    assert len(grown.files) <= first.files
    assert grown.size <= 1.05 * first.size + 300 * (runs - FIRST) / 2, "300 bytes for each row of the audit"
