"""kill -9 of a catalogue, whatever it is doing: the next run ends where an undisturbed one does, and leaves nothing."""

from pathlib import Path

import pytest

from spark_code.catalog.run import CatalogRun
from tests.catalog.harness import SparkForTests
from tests.catalog.kills import SCENARIOS, CatalogVictim, changed
from tests.runs.kills import Kills, parts_of, taken_back_by_hand
from tests.runs.places import Folder
from tests.runs.zombies import wake_after_takeover
from tests.services.children import KILLED, in_child
from tidemark.errors import MarkMoved

pytestmark = pytest.mark.fault

# Of the points at which a run is killed, so that no test takes minutes.
PARTS = 5


@pytest.fixture(scope="module", params=SCENARIOS.values(), ids=SCENARIOS)
def kills(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests
) -> Kills[CatalogVictim]:
    folder = tmp_path_factory.mktemp("kills")
    victim, place = CatalogVictim.make(folder / "here", spark), Folder(folder / "here")
    return Kills(victim, request.param, place, folder / "trace", parts=PARTS)


@pytest.mark.parametrize("part", parts_of(PARTS))
def test_whatever_is_killed_at_any_point_is_put_right_by_the_next_run(kills: Kills[CatalogVictim], part: int | None) -> None:
    kills.part(part)


@pytest.mark.parametrize(
    "point",
    ["run.after_lease", "lake.before_publish", "mirror.before_manifest_delete", "mirror.before_file",
     "control.before_mark_move", "marker.before_swap"],
)  # fmt: skip
def test_a_run_that_was_stopped_and_woken_changes_nothing(tmp_path: Path, spark: SparkForTests, point: str) -> None:
    victim = CatalogVictim.make(tmp_path / "here", spark)
    changed(victim)
    wake_after_takeover(victim, CatalogVictim.run, point, CatalogVictim.run, Folder(tmp_path / "here"), tmp_path / "gate")


def changed_again(victim: CatalogVictim) -> None:
    """Recovers, and publishes something newer."""
    victim.catalog.source.execute("CREATE TABLE newest (a INTEGER)")
    victim.run()


@pytest.mark.parametrize("point", ["recovery.before_run", "mirror.before_manifest_delete", "marks.before_marker"])
def test_a_recovery_that_was_stopped_and_woken_changes_nothing(tmp_path: Path, spark: SparkForTests, point: str) -> None:
    victim = CatalogVictim.make(tmp_path / "here", spark)
    changed(victim)
    assert in_child(CatalogVictim.run, victim, TIDEMARK_FAULT="lake.after_publish") == KILLED
    wake_after_takeover(victim, CatalogVictim.run, point, changed_again, Folder(tmp_path / "here"), tmp_path / "gate")


def test_upkeep_that_was_stopped_and_woken_changes_nothing(tmp_path: Path, spark: SparkForTests) -> None:
    victim = CatalogVictim.make(tmp_path / "here", spark)
    SCENARIOS["upkeep"].prepare(victim)
    work, place = CatalogVictim.maintain, Folder(tmp_path / "here")
    wake_after_takeover(victim, work, "mirror.before_follow", changed_again, place, tmp_path / "gate")


def test_a_state_that_was_taken_back_by_hand_after_the_kill_is_not_finished(tmp_path: Path, spark: SparkForTests) -> None:
    taken_back_by_hand(CatalogVictim.make(tmp_path / "here", spark), SCENARIOS["incremental run"])


def test_a_mark_that_was_moved_since_the_run_planned_stays_where_it_is(tmp_path: Path, spark: SparkForTests) -> None:
    victim = CatalogVictim.make(tmp_path / "here", spark)
    changed(victim)
    subject, address = victim.subject, victim.subject.address
    with CatalogRun(subject, "planned-before") as run:
        staged = run.staged
        moved = subject.control.marks.rewind(address, to_version=1, actor="ann@ship", reason="by hand")
        with pytest.raises(MarkMoved):
            run.publish(staged)
    assert subject.control.marks.version(address) == moved.version
    victim.kept()
    victim.run()
    victim.check_settled()
