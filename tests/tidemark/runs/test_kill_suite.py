"""The kill suite itself: which points it kills at, and that it finds a system that is wrong."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.runs import kills as suite
from tests.runs.kills import Kills, Point, Scenario, chosen, points_of, rotating
from tests.runs.places import Folder
from tests.runs.toy_kills import ToyVictim, changed
from tidemark.faults import fault_point
from tidemark.runs import Run

TRACE = """\
control.before_lease_take a
control.after_lease_take b
run.after_lease b
store.local.before_rename c
store.local.before_rename d
lake.before_publish d
lake.after_publish e
lake.before_publish e
lake.after_publish f
run.after_finish g
"""


@pytest.fixture
def passed(tmp_path: Path) -> list[Point]:
    (tmp_path / "trace").write_text(TRACE)
    return points_of(tmp_path / "trace", Scenario(changed, ToyVictim.run))


@pytest.mark.fast
def test_of_points_between_the_same_effects_one_is_killed_at(passed: list[Point]) -> None:
    faults = [point.fault for point in chosen(passed)]
    assert faults == [
        "control.before_lease_take#1", "run.after_lease#1", "store.local.before_rename#1", "lake.before_publish#1",
        "lake.before_publish#2", "lake.after_publish#2", "run.after_finish#1",
    ]  # fmt: skip


@pytest.mark.fast
def test_what_is_the_same_in_every_run_is_killed_where_that_is_requested(passed: list[Point]) -> None:
    assert [point.fingerprint for point in chosen(passed, whole=False)] == ["c", "d", "e", "f", "g"]


@pytest.mark.fast
def test_all_points_are_killed_at_if_all_are_requested(passed: list[Point], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "ALL", True)
    assert chosen(passed, 1, whole=False) == passed
    assert rotating("toy", ["a", "b", "c"], "b", 1) == ["b", "a", "c"]


@pytest.mark.fast
def test_a_slice_has_points_around_the_publication_and_one_more(passed: list[Point]) -> None:
    few = chosen(passed, 2)
    assert len(few) == 3
    assert all("publish" in point.name for point in few[:2])
    assert rotating("toy", ["a", "b", "c"], "b", 1)[0] == "b"


def marks_first(victim: ToyVictim) -> None:
    with Run(victim.toy, str(uuid4())) as run:
        version = victim.toy.control.marks.version(victim.toy.address)
        victim.toy.move(99, version, run.run_id)
        fault_point("toy.staged")
        run.finish("unchanged")


def publishes_half(victim: ToyVictim) -> None:
    victim.toy.platform.store.put("toy/numbers/sum.json", b'{"run_id": "x", "total": 1, "lines": 1, "expected": 0}')
    fault_point("toy.staged")
    victim.toy.platform.store.delete("toy/numbers/sum.json")
    victim.run()


@pytest.mark.fault
@pytest.mark.parametrize(
    ("work", "said"),
    [(marks_first, "the mark is ahead of the state"), (publishes_half, "a reader saw something in between")],
)
def test_a_system_that_is_wrong_is_found(work: Callable[[ToyVictim], None], said: str, tmp_path: Path) -> None:
    victim, place = ToyVictim.make(tmp_path / "here"), Folder(tmp_path / "here")
    with pytest.raises(AssertionError, match=said):
        Kills(victim, Scenario(lambda _: None, work), place, tmp_path / "trace", parts=1).part(0)
