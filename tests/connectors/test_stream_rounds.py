"""Rounds of random changes, faults and kills: `latest` equals the source, and `changes` has every version once.

TIDEMARK_ROUNDS sets how many rounds there are for each kind, TIDEMARK_SEED the seed; both are printed.
"""

import os
import random
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.catalog.harness import SparkForTests
from tests.catalog.killing import KILLED, in_child
from tests.connectors.harness import Stream

pytestmark = [pytest.mark.fault, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("TIDEMARK_ROUNDS", "12"))
SEED = int(os.environ.get("TIDEMARK_SEED", random.SystemRandom().randrange(10**6)))

Record = dict[str, Any]


class World(ABC):
    """A source that changes at random. `rows` is what it holds; `ever` every version that it ever held, as (id, value)."""

    kind: str
    words: ClassVar[Record]
    # Whether runs can read everything again, and whether only those find what is gone.
    full_runs = True
    compares = False
    # Whether a version that was replaced before it was read is read all the same.
    has_log = False

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rows: dict[int, int] = {}
        self.ever: list[tuple[int, int]] = []
        self._next = 0

    @property
    @abstractmethod
    def settings(self) -> Record: ...

    @abstractmethod
    def change(self) -> None:
        """Some random changes."""

    def version(self, id: int) -> int:
        """A new version of a record, unlike all others."""
        self._next += 1
        self.rows[id] = self._next
        self.ever.append((id, self._next))
        return self._next


class SqlWorld(World):
    kind = "sql"
    words: ClassVar[Record] = {
        "source": "orders",
        "key": ["id"],
        "cursor": "at",
        "safety_window": "PT1H",
        "deletes": "compare",
    }
    compares = True

    def __init__(self, chance: random.Random, folder: Path) -> None:
        super().__init__(chance)
        self.path = folder / "shop.db"
        self._clock = 0
        self._execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, value INTEGER, at DATETIME)")

    @property
    def settings(self) -> Record:
        return {"url": f"sqlite:///{self.path}"}

    def change(self) -> None:
        for _ in range(self.chance.randint(1, 15)):
            id = self.chance.randint(1, 30)
            if id in self.rows and self.chance.random() < 0.3:
                del self.rows[id]
                self._execute(f"DELETE FROM orders WHERE id = {id}")
            else:
                # The same tick again and again, and now and then one that is a little earlier.
                self._clock += self.chance.choice([-20, 0, 0, 0, 1, 60])
                at = f"2026-01-01T{self._clock // 3600 + 1:02}:{self._clock // 60 % 60:02}:{self._clock % 60:02}Z"
                self._execute(f"INSERT OR REPLACE INTO orders VALUES ({id}, {self.version(id)}, '{at}')")

    def _execute(self, sql: str) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute(sql)
        connection.close()


class FilesWorld(World):
    kind = "files"
    words: ClassVar[Record] = {"key": ["id"], "schema_strategy": "fixed", "schema": {"id": "bigint", "value": "bigint"}}

    def __init__(self, chance: random.Random, folder: Path) -> None:
        super().__init__(chance)
        self.folder = folder / "in"
        self.folder.mkdir()

    @property
    def settings(self) -> Record:
        return {"path": str(self.folder)}

    def change(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            number = self.chance.randint(1, 8)
            lines = [f"{id},{self.version(id)}" for id in range(number * 10, number * 10 + 5)]
            path = self.folder / f"{number}.csv"
            path.with_suffix(".part").write_text("\n".join(["id,value", *lines]) + "\n")
            path.with_suffix(".part").rename(self.folder / f"{number}.csv")


def played(world: World, folder: Path, spark: SparkForTests) -> None:
    print(f"seed {SEED}, {ROUNDS} rounds")  # noqa: T201
    stream = Stream.make(folder / "lake", spark, world.kind, world.settings, **world.words)
    trace = folder / "trace"
    world.change()
    assert in_child(stream.platform, lambda: ran(stream), TIDEMARK_FAULT_TRACE=str(trace)) == 0
    points = list(dict.fromkeys(trace.read_text().split()))
    could_be_seen = set(world.rows.items())
    for number in range(ROUNDS):
        if world.chance.random() < 0.9:
            world.change()
        if world.chance.random() < 0.4:
            point = world.chance.choice(points)
            ended = in_child(stream.platform, lambda: ran(stream), TIDEMARK_FAULT=point)
            assert ended in (0, KILLED), f"round {number}, seed {SEED}, {point}"
            continue
        full = world.full_runs and world.chance.random() < 0.3
        stream.run(full=full)
        could_be_seen |= set(world.rows.items())
        latest = {record["id"]: record["value"] for record in stream.latest()}
        there = {id: value for id, value in latest.items() if id in world.rows}
        assert there == world.rows, f"round {number}, seed {SEED}"
        if full or not world.compares:
            assert latest.keys() == world.rows.keys(), f"round {number}, seed {SEED}"
    stream.run(full=world.full_runs)
    could_be_seen |= set(world.rows.items())
    assert {record["id"]: record["value"] for record in stream.latest()} == world.rows, f"seed {SEED}"
    versions = [(r["id"], r["value"]) for r in stream.changes() if r["value"] is not None]
    assert len(versions) == len(set(versions)), f"landed twice, seed {SEED}"
    assert set(versions) <= set(world.ever), f"seed {SEED}"
    assert (set(world.ever) if world.has_log else could_be_seen) <= set(versions), f"lost, seed {SEED}"


def ran(stream: Stream) -> bool:
    stream.run()
    return True


def test_rounds_of_a_table(tmp_path: Path, spark: SparkForTests) -> None:
    played(SqlWorld(random.Random(SEED), tmp_path), tmp_path, spark)


def test_rounds_of_files(tmp_path: Path, spark: SparkForTests) -> None:
    played(FilesWorld(random.Random(SEED), tmp_path), tmp_path, spark)
