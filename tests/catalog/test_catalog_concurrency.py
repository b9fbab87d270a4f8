"""Two runs of one connection at the same time: one wins, the other says so and changes nothing."""

import os
import time
from pathlib import Path

import pytest

from tests.catalog.harness import Catalog, SparkForTests, in_order
from tests.services.children import Child
from tidemark.errors import LostRace, RunInProgress
from tidemark.publication import publish_branch

pytestmark = pytest.mark.fault

# Where the first run stands when the second comes: twenty places from its first effect to its last.
PLACES = (
    "run.after_lease", "run.after_recovery", "run.after_begin", "run.before_plan", "run.after_plan", "parts.before_write",
    "parts.after_write", "lake.before_branch", "lake.after_branch", "state.between_delete_and_append", "state.after_append",
    "diff.before_write", "diff.after_write", "lake.before_publish", "lake.after_publish", "mirror.after_manifest_delete",
    "mirror.before_manifest_put", "marks.before_marker", "marker.after_swap", "run.after_finish",
)  # fmt: skip
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_of_two_runs_at_once_one_wins_and_the_other_is_told(catalog: Catalog, tmp_path: Path, part: int) -> None:
    assert len(PLACES) == 20
    catalog.source.execute("CREATE TABLE note (id INTEGER)")
    catalog.run()
    places = PLACES[part::PARTS]
    for number, place in enumerate(places):
        catalog.source.execute(f"ALTER TABLE note ADD COLUMN c{number} TEXT")
        gate = tmp_path / f"gate_{number}"
        paused = {"TIDEMARK_FAULT": f"{place}:pause", "TIDEMARK_FAULT_GATE": str(gate)}
        first = Child(Catalog.run, catalog, environment=os.environ | paused)
        while not gate.with_suffix(".reached").exists():
            assert first.process.is_alive(), place
            time.sleep(0.02)
        with pytest.raises(RunInProgress, match=r"is in progress on .+ \(pid \d+\)"):
            catalog.attempt(raise_on_error=True)
        gate.touch()
        assert first.wait() == 0, place
        latest = catalog.subject.control.runs.history(catalog.subject.address)
        assert [run.status for run in latest] == ["published"] * (number + 2), place
    assert catalog.columns_of("note") == ["id", *(f"c{n}" for n in range(len(places)))]
    assert catalog.mirror() == in_order(catalog.state())


def test_without_a_lease_the_lake_itself_lets_one_of_two_stages_through(catalog: Catalog, spark: SparkForTests) -> None:
    """The lease is the first of three guards; this is what the second does when the first is gone."""
    catalog.source.execute("CREATE TABLE note (id INTEGER)")
    catalog.run()
    lake, table = catalog.platform.lake, catalog.subject.layout.table
    for name in ("one", "two"):
        branch = lake.stage(table, name)
        lake.spark.sql(f"DELETE FROM {branch} WHERE kind = '{name}' OR kind = 'column'")
    base = lake.reader.published(table)
    assert base is not None
    publish_branch(lake.reader.existing(table), "one", base.snapshot_id)
    published = lake.reader.published(table)
    with pytest.raises(LostRace, match="another run published first"):
        publish_branch(lake.reader.existing(table), "two", base.snapshot_id)
    assert lake.reader.published(table) == published
