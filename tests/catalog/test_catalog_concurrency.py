"""Two runs of one connection at the same time: one wins, the other says so and changes nothing."""

import time
from pathlib import Path
from threading import Thread

import pytest

from tests.catalog.harness import Catalog, SparkForTests, in_order
from tests.catalog.killing import run_in_child
from tidemark.errors import LostRace, RunInProgress

pytestmark = pytest.mark.fault

# Where the first run stands when the second comes: twenty places from its first effect to its last.
PLACES = (
    "run.after_lease", "run.after_recovery", "run.after_begin", "run.before_plan", "run.after_plan", "parts.before_write",
    "parts.after_write", "lake.before_branch", "lake.after_branch", "state.between_delete_and_append", "state.after_append",
    "diff.before_write", "diff.after_write", "lake.before_publish", "lake.after_publish", "mirror.after_manifest_delete",
    "mirror.before_manifest_put", "marks.before_marker", "marker.after_swap", "run.after_finish",
)  # fmt: skip


@pytest.mark.timeout(1800)
def test_of_two_runs_at_once_one_wins_and_the_other_is_told(catalog: Catalog, tmp_path: Path) -> None:
    catalog.source.execute("CREATE TABLE note (id INTEGER)")
    catalog.run()
    for number, place in enumerate(PLACES):
        catalog.source.execute(f"ALTER TABLE note ADD COLUMN c{number} TEXT")
        gate = tmp_path / f"gate_{number}"
        paused = {"TIDEMARK_FAULT": f"{place}:pause", "TIDEMARK_FAULT_GATE": str(gate)}
        codes: list[int] = []
        first = Thread(target=lambda: codes.append(run_in_child(catalog, **paused)))  # noqa: B023
        first.start()
        while not gate.with_suffix(".reached").exists():
            time.sleep(0.02)
        with pytest.raises(RunInProgress, match=r"is in progress on .+ \(pid \d+\)"):
            catalog.attempt(raise_on_error=True)
        gate.touch()
        first.join()
        assert codes == [0], place
        latest = catalog.subject.control.runs.history("catalog", catalog.subject.name)
        assert [run.status for run in latest] == ["published"] * (number + 2), place
    assert len(PLACES) == 20
    assert catalog.columns_of("note") == ["id", *(f"c{n}" for n in range(20))]
    assert catalog.mirror() == in_order(catalog.state())


def test_without_a_lease_the_lake_itself_lets_one_of_two_stages_through(catalog: Catalog, spark: SparkForTests) -> None:
    """The lease is the first of three guards; this is what the second does when the first is gone."""
    catalog.source.execute("CREATE TABLE note (id INTEGER)")
    catalog.run()
    lake, table = catalog.platform.lake, catalog.subject.layout.table
    for name in ("one", "two"):
        branch = lake.stage(table, name)
        lake.spark.sql(f"DELETE FROM {branch} WHERE kind = '{name}' OR kind = 'column'")
    lake.publish(table, "one")
    published = lake.reader.published(table)
    with pytest.raises(LostRace, match="another run published first"):
        lake.publish(table, "two")
    assert lake.reader.published(table) == published
