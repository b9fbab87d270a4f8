"""Models on bad days: kill -9 at every point of every policy. Readers see the old or the new, and the next run is right."""

from pathlib import Path

import pytest

from tests.catalog.harness import SparkForTests
from tests.models.kills import NAME, SCENARIOS, ModelVictim, changed
from tests.runs.kills import Kills, parts_of, taken_back_by_hand
from tests.runs.places import Folder
from tests.runs.zombies import wake_after_takeover
from tests.services.children import KILLED, in_child
from tidemark.lake import plain_path

pytestmark = pytest.mark.fault

# Of the points at which a run is killed, so that no test takes minutes.
PARTS = 4


@pytest.fixture(scope="module", params=SCENARIOS.values(), ids=SCENARIOS)
def kills(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests
) -> Kills[ModelVictim]:
    folder = tmp_path_factory.mktemp("kills")
    victim, place = ModelVictim.make(folder / "here", spark), Folder(folder / "here")
    return Kills(victim, request.param, place, folder / "trace", parts=PARTS)


@pytest.mark.parametrize("part", parts_of(PARTS))
def test_whatever_is_killed_at_any_point_leaves_the_old_or_the_new_and_the_next_run_is_right(
    kills: Kills[ModelVictim], part: int
) -> None:
    kills.part(part)


@pytest.mark.parametrize("point", ["run.after_lease", "lake.before_publish", "control.before_mark_move"])
def test_a_run_that_was_stopped_and_woken_changes_nothing(tmp_path: Path, spark: SparkForTests, point: str) -> None:
    victim = ModelVictim.make(tmp_path / "here", spark)
    changed(victim)
    wake_after_takeover(victim, ModelVictim.run, point, ModelVictim.run, Folder(tmp_path / "here"), tmp_path / "gate")


def test_rows_that_were_taken_back_by_hand_after_the_kill_are_not_finished(tmp_path: Path, spark: SparkForTests) -> None:
    taken_back_by_hand(ModelVictim.make(tmp_path / "here", spark), SCENARIOS["incremental run"])


def test_a_refresh_that_was_killed_goes_on_behind_the_last_chunk(tmp_path: Path, spark: SparkForTests) -> None:
    victim, scenario = ModelVictim.make(tmp_path / "here", spark), SCENARIOS["full_incremental_refresh"]
    scenario.prepare(victim)
    lab = victim.lab
    assert in_child(scenario.work, victim, TIDEMARK_FAULT="models.after_chunk") == KILLED
    (name,) = lab.platform.lake.reader.shadows(NAME)
    shadow = lab.platform.lake.reader.existing(name)
    first = shadow.current_snapshot()
    assert first is not None
    manifests = {plain_path(manifest.manifest_path) for manifest in first.manifests(shadow.io)}
    victim.run()
    assert "resumed" in lab.last_run(NAME).detail["reason"]
    assert manifests <= lab.platform.lake.reader.referenced(NAME), "the first chunk was written again"
    assert [row["w"] for row in lab.rows(NAME, "id")] == ["A", "BB", "C"]
