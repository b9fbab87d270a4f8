"""A run that was stopped while it wrote the mirror and wakes when a newer one has taken over changes nothing."""

import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidemark.catalog.mirror_world import World
from tidemark.store import LocalStore, ObjectStore

LIMIT_SECONDS = 60


class Run:
    """A process that brings the mirror to a state, step by step."""

    def __init__(self, world: World, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.tidemark.catalog.mirror_world", pickle.dumps(world).hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def stop_at(self, point: str, run_id: str, how: str) -> None:
        """Begins, and is stopped for good (SIGSTOP) when it reaches the point."""
        self._count += 1
        self._gate = self._folder / f"gate_{self._process.pid}_{self._count}"
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{run_id} {how} {point}:pause {self._gate}\n")
        self._process.stdin.flush()
        reached = self._gate.with_suffix(".reached")
        limit = time.monotonic() + LIMIT_SECONDS
        # `select` knows no descriptor above 1,023, and a process that has run many tests may have more.
        said = select.poll()
        said.register(self._process.stdout, select.POLLIN)
        # Not every run passes every point: one that does not is stopped when it is through.
        while not reached.exists() and not said.poll(0):
            assert time.monotonic() < limit, point
            time.sleep(0.005)
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def wake(self) -> str:
        """Lets it go on to its end; returns what became of it."""
        self._gate.touch()
        os.kill(self._process.pid, signal.SIGCONT)
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[World], Run]]:
    runs: list[Run] = []

    def begun(world: World) -> Run:
        runs.append(Run(world, tmp_path))
        return runs[-1]

    yield begun
    for run in runs:
        run.end()


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.fault), pytest.param("s3_store", marks=pytest.mark.service)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    store: ObjectStore = request.getfixturevalue(request.param)
    world = World(store, str(tmp_path / "lake"))
    world.make_lake()
    return world


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "store"))


def points_of(world: World, trace: Path, run_id: str, how: str) -> list[str]:
    """Every fault point that a run passes, in order, each once."""
    os.environ["TIDEMARK_FAULT_TRACE"] = str(trace)
    world.bring_to(run_id, increment=how == "increment")
    del os.environ["TIDEMARK_FAULT_TRACE"]
    return list(dict.fromkeys(trace.read_text().split()))


# What happened while the run was stopped: the next run recovered, and a later one published; or somebody rolled back.
NEWER: dict[str, Callable[[World, str, str], object]] = {
    "recovered, then another run": lambda world, base, run_id: (world.bring_to(run_id), world.bring_to(base)),
    "rolled back": lambda world, base, run_id: world.settle(base),
}


@pytest.mark.parametrize("newer", NEWER)
@pytest.mark.parametrize("how", ["increment", "full"])
@pytest.mark.parametrize(("base", "run_id"), [("run_1", "run_2"), ("run_2", "run_3")], ids=["more files", "fewer files"])
def test_a_run_that_wakes_after_a_newer_one_changes_nothing(
    world: World, begin: Callable[[World], Run], tmp_path: Path, base: str, run_id: str, how: str, newer: str
) -> None:
    world.settle(base)
    points = points_of(world, tmp_path / "trace", run_id, how)
    assert {"mirror.before_manifest_delete", "mirror.before_file", "mirror.after_manifest_put"} <= set(points)
    assert run_id == "run_2" or "mirror.before_stale_delete" in points
    zombie = begin(world)
    for point in points:
        world.start_again(base)
        zombie.stop_at(point, run_id, how)
        NEWER[newer](world, base, run_id)
        before = world.objects()
        ended = zombie.wake()
        assert world.objects() == before, point
        assert world.faults() == []
        assert ended.startswith("LostRace: persistent-artifacts/"), (point, ended)


@pytest.mark.parametrize("world", [pytest.param("local", marks=pytest.mark.fault)], indirect=True)
@pytest.mark.parametrize(("base", "run_id"), [("run_1", "run_2"), ("run_2", "run_3")], ids=["more files", "fewer files"])
def test_of_two_runs_that_write_by_turns_no_mixture_is_ever_shown(
    world: World, begin: Callable[[World], Run], tmp_path: Path, base: str, run_id: str
) -> None:
    """The newer one is stopped too, at every point, while the older one wakes and goes on to its end."""
    world.settle(base)
    points = points_of(world, tmp_path / "older", run_id, "increment")
    points_of_newer = points_of(world, tmp_path / "newer", base, "full")
    older, newer = begin(world), begin(world)
    finished = 0
    for where in points:
        for meanwhile in points_of_newer:
            world.start_again(base)
            older.stop_at(where, run_id, "increment")
            newer.stop_at(meanwhile, base, "full")
            older.wake()
            assert world.faults() == [], (where, meanwhile)
            ended = newer.wake()
            assert world.faults() == [], (where, meanwhile)
            if ended == "done":
                finished += 1
            else:
                assert ended.startswith("LostRace"), (where, meanwhile, ended)
                world.bring_to(base)
                assert world.faults() == []
            assert world.shown() == world.expected(base), (where, meanwhile)
    assert finished > len(points)


@pytest.mark.parametrize("newer", ["run_1", "run_2"])
def test_a_file_that_was_not_there_at_the_start_is_neither_replaced_nor_left_behind(
    world: World, begin: Callable[[World], Run], newer: str
) -> None:
    """The second state has more files than the first. Every file has a worker, and all are stopped before they write."""
    zombie = begin(World(world.store, world.lake, workers=16))
    world.start_again()
    zombie.stop_at("mirror.before_file", "run_2", "increment")
    world.bring_to(newer)
    before = world.objects()
    assert zombie.wake().startswith("LostRace")
    assert world.objects() == before


def test_files_that_a_newer_run_carries_are_no_longer_those_of_the_run_that_made_them(
    world: World, begin: Callable[[World], Run]
) -> None:
    zombie = begin(world)
    zombie.stop_at("mirror.after_manifest_put", "run_2", "full")
    made = world.objects()
    world.bring_to("run_4", increment=True)
    before = world.objects()
    assert any(made[path] == before[path] for path in before)
    assert zombie.wake().startswith("LostRace")
    assert world.objects() == before
