"""The job `tidemark_upkeep` of streams and models, as Dagster runs it; that of a connection is in `tests/catalog`."""

from pathlib import Path

import pytest
from dagster import ExecuteInProcessResult

from partitions.subjects import subjects
from platform_assets.launch import QUIET
from tests.catalog.harness import SparkForTests
from tests.models.folder import LINES
from tests.models.running import Running
from tidemark.control import RunRecord
from tidemark.runs import Mode

STREAM, MODEL = "stream/default/drops/drops.lines", "model/gold.lines"
INCREMENTAL = f"""\
/* ---
materialization: incremental
incremental: {{strategy: merge, merge: {{unique_key: [delivery, line], filter_column: delivery}}}}
--- */
SELECT record.delivery AS delivery, record.line AS line, record.sku AS sku FROM {LINES}
"""


class Kept(Running):
    """Deliveries and a model over them, and their upkeep."""

    def __init__(self, path: Path, spark: SparkForTests) -> None:
        super().__init__(path, spark)
        self.write("gold/lines.sql", INCREMENTAL)

    def grow(self, *deliveries: int) -> None:
        for delivery in deliveries:
            self.deliver(delivery, "bolt", "nut")
            assert self.run("gold.lines").success

    def keep_up(self, address: str) -> ExecuteInProcessResult:
        from platform_assets.definitions import defs

        self.instance.add_dynamic_partitions(str(subjects.name), [address])
        return defs.resolve_job_def("tidemark_upkeep").execute_in_process(
            instance=self.instance, partition_key=address, run_config=QUIET, raise_on_error=False
        )

    def newest(self, address: str) -> RunRecord:
        return self.platform.control.runs.history(address, limit=1)[0]

    def files(self, table: str) -> int:
        published = self.platform.reader.published(table)
        assert published is not None
        return len(self.platform.reader.files(table, published.snapshot_id).data)

    def landed(self) -> list[object]:
        return [row["record"] for row in self.rows(LINES)]


@pytest.fixture
def kept(tmp_path: Path, spark: SparkForTests, monkeypatch: pytest.MonkeyPatch) -> Kept:
    kept = Kept(tmp_path, spark)
    monkeypatch.setenv("TIDEMARK_CONFIG", str(kept.config))
    return kept


@pytest.mark.parametrize(("address", "table"), [(STREAM, "bronze.default.drops.drops_lines"), (MODEL, "gold.lines")])
def test_upkeep_in_dagster_leaves_the_same_rows_in_fewer_files(kept: Kept, address: str, table: str) -> None:
    kept.grow(1, 2, 3)
    before, landed, files = kept.rows("gold.lines"), kept.landed(), kept.files(table)
    done = kept.keep_up(address)
    assert done.success
    assert (kept.rows("gold.lines"), kept.landed()) == (before, landed)
    assert kept.files(table) < files
    record = kept.newest(address)
    assert (record.mode, record.status, record.dagster_run) == (Mode.UPKEEP, "published", done.run_id)
    kept.grow(4)
    assert len(kept.rows("gold.lines")) == 8
