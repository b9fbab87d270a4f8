"""The kill suite, written once: whatever a user does, ended by kill -9 at every point, is put right by the next run.

A system brings a `Victim`, which knows its harness, and names its scenarios. The points are traced, never listed. Of points
that lie between the same two durable effects one is enough: the trace takes a fingerprint of all that outlives the process
at every point, and what is the same for two of them is the same for whoever comes next. `TIDEMARK_KILLS=all` kills at each,
every time that it is passed.
"""

import os
import random
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tests.runs.places import Place
from tests.services.children import KILLED, in_child
from tidemark import faults
from tidemark.control import RunRecord
from tidemark.runs import Mode, Visible

ALL = os.environ.get("TIDEMARK_KILLS") == "all"


def seed() -> int:
    """Printed by every test that uses it. Processes that share the tests among them must agree on it."""
    together = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    chosen = int(together, 16) % 10**6 if together else random.randrange(10**6)
    return int(os.environ.get("TIDEMARK_SEED", chosen))


SEED = seed()
# Passed for every file or object: killed at the first and at one by chance, unless all are requested. Points inside of
# Spark's tasks are passed in processes of their own, and are not seen here.
REPEATED = re.compile(r"^(store|parts|mirror|control)\.")
# Lease and ledger, the same code in every system: killed in the toy, and in the incremental run of every system.
OF_EVERY_RUN = re.compile(
    r"^(control\.(before|after)_(lease_take|lease_release|run_begin|run_update)|run\.after_(lease|recovery|begin|tidy))$"
)
# Around what makes a run count.
BOUNDARY = re.compile(r"(before|after)_(publish|mark_move|mark_rewind|swap|run_finish|manifest_put)$")


class Victim(ABC):
    """A subject that is killed again and again: how it is run, and what must hold whatever happened to it."""

    # How many tables a run publishes.
    publishes = 1

    @property
    @abstractmethod
    def table(self) -> str:
        """The table whose publication makes a run count."""

    @property
    @abstractmethod
    def subject(self) -> Any:
        """The subject as a new process opens it."""

    @abstractmethod
    def reopen(self) -> None:
        """What is open is of a state that is gone: opens everything again."""

    @abstractmethod
    def run(self) -> object:
        """The next ordinary run."""

    @abstractmethod
    def shown(self) -> Any:
        """What readers see, in a form that can be compared; None before the first publication."""

    @abstractmethod
    def check_settled(self) -> None:
        """After an ordinary run: readers see what a fresh read of everything would give."""

    @abstractmethod
    def mark_is_ahead(self) -> bool:
        """Whether the mark is later than what is published: then the next run would skip something."""

    @abstractmethod
    def moved_the_mark(self) -> str | None:
        """The run that moved the mark last."""

    @abstractmethod
    def strays(self) -> list[str]:
        """What nothing published accounts for, once files without an owner were swept."""

    @abstractmethod
    def kept(self) -> None:
        """The state has been kept. A check may compare with what is remembered here."""

    @abstractmethod
    def undisturbed(self) -> None:
        """Nothing was killed, and an ordinary run has followed. Here too."""


V = TypeVar("V", bound=Victim)


@dataclass(frozen=True)
class Scenario(Generic[V]):
    """Something that is done to a subject, and how it gets into the state that this begins from."""

    prepare: Callable[[V], object]
    # In a child, so a function of a module.
    work: Callable[[V], object]
    # Points that must be passed, so that the suite cannot lose sight of them.
    passes: tuple[str, ...] = ()
    # Points after this one are those of another scenario.
    until: str | None = None
    # Whether it is killed where every run is the same as well.
    whole: bool = False
    only: Callable[[str], bool] = lambda point: True
    # How many ordinary runs bring everything up to date again.
    runs: int = 1


@dataclass(frozen=True)
class Point:
    """A fault point, passed for the so-manieth time, and what there was then."""

    name: str
    number: int
    fingerprint: str

    @property
    def fault(self) -> str:
        return f"{self.name}#{self.number}"


def recovery(scenario: Scenario[V], *dies_at: str) -> Scenario[V]:
    """The recovery of a run that was killed, killed as well: all points until the next run begins."""

    def prepare(victim: V) -> None:
        scenario.prepare(victim)
        for point in dies_at:
            assert in_child(scenario.work, victim, TIDEMARK_FAULT=point) == KILLED

    return Scenario(
        prepare, scenario.work, ("recovery.before_run", "recovery.after_run"), until="run.after_recovery", whole=True
    )


def parts_of(number: int) -> list[int | None]:
    """The tests of a scenario. The first one only prepares it: on a busy machine that takes as long as some kills."""
    return [None, *range(number)]


class Kills(Generic[V]):
    """One scenario of one subject: the state before it, kept aside, and its points."""

    def __init__(
        self, victim: V, scenario: Scenario[V], place: Place, trace: Path, *, parts: int, few: int | None = None
    ) -> None:
        self.victim, self.scenario, self.place, self.parts = victim, scenario, place, parts
        started = time.monotonic()
        scenario.prepare(victim)
        self.close()
        place.keep()
        victim.reopen()
        victim.kept()
        self.before = victim.shown()
        assert in_child(traced, scenario.work, victim, place, trace) == 0
        self.close()
        victim.reopen()
        self.after = victim.shown()
        for _ in range(scenario.runs):
            victim.run()
        victim.undisturbed()
        passed = points_of(trace, scenario)
        assert set(scenario.passes) <= {point.name for point in passed}, passed
        self.points = chosen(passed, few, whole=scenario.whole)
        took = time.monotonic() - started
        said = f"{len(self.points)} of {len(passed)} points are killed at; prepared in {took:.1f} s"
        print(said, f"(TIDEMARK_SEED={SEED})" if few is not None else "")  # noqa: T201

    def close(self) -> None:
        """Lets go of both databases."""
        platform = self.victim.subject.platform
        platform.control.close()
        if platform.reader._catalog is not None:  # not to open it
            platform.reader.catalog.close()

    def part(self, number: int | None) -> None:
        """Kills at every n-th point, one after the other. None: it is only prepared."""
        if number is None:
            assert self.points
            return
        started, points = time.monotonic(), self.points[number :: self.parts]
        for point in points:
            self.kill(point)
        print(f"{len(points)} kills in {time.monotonic() - started:.1f} s")  # noqa: T201

    def kill(self, point: Point) -> None:
        victim = self.victim
        self.close()
        self.place.restore()
        victim.reopen()
        assert in_child(self.scenario.work, victim, TIDEMARK_FAULT=point.fault) == KILLED, point
        subject = victim.subject
        shown, seen = victim.shown(), subject.visible()
        assert shown in (self.before, self.after), (point, "a reader saw something in between")
        assert not victim.mark_is_ahead(), (point, "the mark is ahead of the state")
        dead, moved = subject.control.runs.running(subject.address), victim.moved_the_mark()
        for _ in range(self.scenario.runs):
            victim.run()
        self._check(point, dead, seen, moved)

    def _check(self, point: Point, dead: Sequence[RunRecord], seen: Visible | None, moved: str | None) -> None:
        victim, control = self.victim, self.victim.subject.control
        try:
            victim.check_settled()
        except AssertionError as wrong:
            wrong.add_note(f"killed at {point}")
            raise
        assert not victim.mark_is_ahead(), (point, "the mark is ahead of the state")
        assert control.runs.running(victim.subject.address) == [], point
        assert control.leases.held() == [], point
        for each in dead:
            record = control.runs.find(victim.subject.address, each.run_id)
            assert record.status == expected_end(each, seen, moved), (point, record)
            assert (record.error or "").startswith("RunAbandoned: ") == (record.status == "abandoned"), (point, record)
        assert victim.strays() == [], point


def expected_end(dead: RunRecord, seen: Visible | None, moved: str | None) -> str:
    """What the history says of a run that was killed: what readers and the next run see of it."""
    if seen is not None and seen.run_id == dead.run_id:
        return "published"
    # It had nothing to publish and has moved the mark. A rollback moves it first, and then has everything before it.
    return "unchanged" if moved == dead.run_id and dead.mode != Mode.ROLLBACK else "abandoned"


def traced(work: Callable[[V], object], victim: V, place: Place, trace: Path) -> None:
    """In a child: does the work, and notes every point with a fingerprint of what there was."""
    with trace.open("w", buffering=1) as out:
        faults.watcher = lambda name: print(name, place.fingerprint(), file=out)
        work(victim)


def points_of(trace: Path, scenario: Scenario[Any]) -> list[Point]:
    counted: Counter[str] = Counter()
    found: list[Point] = []
    for line in trace.read_text().splitlines():
        name, fingerprint = line.split()
        counted[name] += 1
        found.append(Point(name, counted[name], fingerprint))
        if name == scenario.until:
            break
    return [point for point in found if scenario.only(point.name)]


def chosen(passed: list[Point], few: int | None = None, *, whole: bool = True) -> list[Point]:
    """Where to kill: at one point of each durable state, or at so many around publication and mark, and one by chance.

    Of the states between the files or objects of one kind, which are many and alike, one by chance stands for all.
    """
    if ALL:
        return passed
    first = [point for point in passed if point.number == 1 or not REPEATED.match(point.name)]
    own = {point.fingerprint for point in passed if whole or not OF_EVERY_RUN.match(point.name)}
    distinct = list({point.fingerprint: point for point in first if point.fingerprint in own}.values())
    chance = random.Random(SEED)
    if few is None:
        killed = {point.fingerprint for point in distinct}
        alike = list({point.fingerprint: point for point in passed if point.fingerprint in own - killed}.values())
        return [*distinct, *chance.sample(alike, min(1, len(alike)))]
    around = [point for point in distinct if BOUNDARY.search(point.name)]
    others = [point for point in distinct if point not in around]
    return [*chance.sample(around, min(few, len(around))), *chance.sample(others, min(1, len(others)))]


def rotating(system: str, scenarios: Iterable[str], always: str, more: int) -> list[str]:
    """The scenarios of a slow place: one that is always killed, and some by chance. All of them if all are requested."""
    others = [name for name in scenarios if name != always]
    return [always, *(others if ALL else random.Random(f"{system} {SEED}").sample(others, more))]


def taken_back_by_hand(victim: V, scenario: Scenario[V]) -> None:
    """Between the kill and the next run somebody rolls the table back by SQL: what the dead run published is not there."""
    scenario.prepare(victim)
    victim.kept()
    subject = victim.subject
    before = subject.visible()
    # The last table that it publishes is the one that counts.
    passed = f"lake.after_publish#{victim.publishes}"
    assert in_child(scenario.work, victim, TIDEMARK_FAULT=passed) == KILLED
    [dead] = subject.control.runs.running(subject.address)
    spark = subject.platform.lake.spark
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{victim.table}', {before.snapshot})")
    victim.run()
    victim.check_settled()
    assert not victim.mark_is_ahead()
    assert subject.control.runs.find(subject.address, dead.run_id).status == "abandoned"
