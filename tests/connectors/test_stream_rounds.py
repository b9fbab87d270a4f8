"""Rounds of random changes, faults and kills: `latest` equals the source, and `changes` has every version once.

TIDEMARK_ROUNDS sets how many rounds there are for each kind, TIDEMARK_SEED the seed; both are printed.
"""

import gzip
import json
import os
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from confluent_kafka import Producer

from tests.catalog.harness import SparkForTests
from tests.connectors.harness import Stream
from tests.services.cap import CapServer
from tests.services.children import KILLED, in_child
from tests.services.http_proxy import WEB_PAGE, Answered, CutBody, CutGzip, FaultProxy, Reset
from tests.services.kafka import KafkaServer
from tests.services.postgres import PostgresServer
from tidemark.connectors.tcp_proxy import TcpProxy, tcp_proxy
from tidemark.errors import SourceError, TaskLost

pytestmark = pytest.mark.fault

ROUNDS = int(os.environ.get("TIDEMARK_ROUNDS", "12"))
SEED = int(os.environ.get("TIDEMARK_SEED", random.SystemRandom().randrange(10**6)))
# Rounds of one test: enough for something to happen, few enough to be over soon.
AT_ONCE = 4

Record = dict[str, Any]


class World(ABC):
    """A source that changes at random. `rows` is what it holds; `ever` every version that it ever held, as (id, value)."""

    kind: str
    words: ClassVar[Record]
    value = "value"
    # Whether runs can read everything again, and whether only those find what is gone.
    full_runs = True
    compares = False
    # Whether a version that was replaced before it was read is read all the same.
    has_log = False
    # How often the source is disturbed, and how often a record becomes again what it once was.
    stumbles = 0.15
    flips = 0.0

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

    def was_read(self) -> None:  # noqa: B027 - few worlds need to know
        """A run has come to its end."""

    @abstractmethod
    def disturbed(self) -> AbstractContextManager[object]:
        """While it lasts, the source stumbles at random, or does not answer at all."""

    def version(self, id: int) -> int:
        """A new version of a record: unlike all others, or one that it had before."""
        before = {value for known, value in self.ever if known == id} - {self.rows.get(id)}
        if before and self.chance.random() < self.flips:
            value = self.chance.choice(sorted(before))
        else:
            self._next += 1
            value = self._next
        self.rows[id] = value
        self.ever.append((id, value))
        return value


class TableWorld(World):
    """A table of PostgreSQL, behind a proxy that can break connections off."""

    def __init__(self, chance: random.Random, server: PostgresServer, proxy: TcpProxy) -> None:
        super().__init__(chance)
        self.own, self.proxy = server.new_database(), proxy

    @property
    def settings(self) -> Record:
        parts = urlsplit(self.own)
        return {"url": urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.proxy.port}"))}

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        # Some are met while a run plans, some while it reads.
        self.proxy.reset(*(self.chance.randint(0, 2000) for _ in range(self.chance.randint(1, 6))))
        yield
        self.proxy.calm()


class SqlWorld(TableWorld):
    kind = "sql"
    flips = 0.2
    words: ClassVar[Record] = {
        "source": "orders",
        "key": ["id"],
        "cursor": "at",
        "safety_window": "PT1H",
        "deletes": "compare",
    }
    compares = True

    def __init__(self, chance: random.Random, server: PostgresServer, proxy: TcpProxy) -> None:
        super().__init__(chance, server, proxy)
        self._clock = 0
        server.execute(self.own, "CREATE TABLE orders (id int PRIMARY KEY, value int, at timestamptz)")

    def change(self) -> None:
        with psycopg.connect(self.own, autocommit=True) as connection:
            for _ in range(self.chance.randint(1, 15)):
                id = self.chance.randint(1, 30)
                if id in self.rows and self.chance.random() < 0.3:
                    del self.rows[id]
                    connection.execute("DELETE FROM orders WHERE id = %s", (id,))
                else:
                    # The same tick again and again, and now and then one that is a little earlier.
                    self._clock += self.chance.choice([-20, 0, 0, 0, 1, 60])
                    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=1, seconds=self._clock)
                    connection.execute(
                        "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET value = excluded.value, "
                        "at = excluded.at",
                        (id, self.version(id), at),
                    )


class FilesWorld(World):
    kind = "files"
    words: ClassVar[Record] = {"key": ["id"], "schema_strategy": "fixed", "schema": {"id": "bigint", "value": "bigint"}}

    def __init__(self, chance: random.Random, folder: Path) -> None:
        super().__init__(chance)
        self.folder, self.away = folder / "in", folder / "away"
        self.folder.mkdir()
        self.away.mkdir()
        self._unread: set[str] = set()

    @property
    def settings(self) -> Record:
        return {"path": str(self.folder), "look_back": "PT0S"}

    def change(self) -> None:
        """New and replaced files, of any of the last ten days; some are away for a while."""
        for path in sorted(self.away.iterdir()):
            if self.chance.random() < 0.5:
                path.rename(self.folder / path.name)
        for path in sorted(self.folder.iterdir()):
            if path.name not in self._unread and self.chance.random() < 0.2:
                path.rename(self.away / path.name)
        for _ in range(self.chance.randint(1, 3)):
            number = self.chance.randint(1, 8)
            lines = [f"{id},{self.version(id)}" for id in range(number * 10, number * 10 + 5)]
            path = self.folder / f"{number}.csv"
            (self.away / path.name).unlink(missing_ok=True)
            new = self.away.with_name("new")
            new.write_text("\n".join(["id,value", *lines]) + "\n")
            day = self.chance.randint(1, 10) * 86_400 * 10**9
            os.utime(new, ns=(day, day + self._next))
            new.rename(path)
            self._unread.add(path.name)

    def was_read(self) -> None:
        self._unread.clear()

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """A file that somebody has not written to its end yet."""
        lines = [f"{id},{self.version(id)}" for id in range(90, 90 + self.chance.randint(1, 5))]
        whole = gzip.compress("\n".join(["id,value", *lines, ""]).encode(), mtime=0)
        path = self.folder / f"{self._next}.csv.gz"
        path.write_bytes(whole[: self.chance.randint(1, len(whole) - 1)])
        yield
        path.write_bytes(whole)
        self._unread.add(path.name)


class ODataWorld(World):
    kind = "odata"
    flips = 0.2
    words: ClassVar[Record] = {
        "source": "Orders", "key": ["id"], "cursor": "updated_at", "safety_window": "PT1H", "deletes": "compare",
    }  # fmt: skip
    compares = True
    value = "quantity"

    def __init__(self, chance: random.Random, server: CapServer, proxy: FaultProxy) -> None:
        super().__init__(chance)
        self.server, self.proxy, self._clock = server, proxy, 0
        server.execute("DELETE FROM data_Orders")

    @property
    def settings(self) -> Record:
        return {"url": self.proxy.url + urlsplit(self.server.shop).path}

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        self.proxy.plan(*self.chance.choices([Answered(503), Answered(429), Reset(), CutBody(), CutGzip(), WEB_PAGE], k=3))
        yield
        self.proxy.calm()

    def change(self) -> None:
        statements = []
        for _ in range(self.chance.randint(1, 15)):
            id = self.chance.randint(1, 30)
            statements.append(f"DELETE FROM data_Orders WHERE id = {id}")
            if id in self.rows and self.chance.random() < 0.3:
                del self.rows[id]
            else:
                self._clock += self.chance.choice([-20, 0, 0, 0, 1, 60])
                at = f"2026-01-01T{self._clock // 3600 + 1:02}:{self._clock // 60 % 60:02}:{self._clock % 60:02}.000Z"
                statements.append(
                    f"INSERT INTO data_Orders (id, quantity, updated_at) VALUES ({id}, {self.version(id)}, '{at}')"
                )
        self.server.execute(*statements)


class CdcWorld(TableWorld):
    kind = "cdc"
    flips = 0.2
    words: ClassVar[Record] = {"source": "orders", "key": ["id"]}
    full_runs = False
    has_log = True

    def __init__(self, chance: random.Random, server: PostgresServer, proxy: TcpProxy) -> None:
        super().__init__(chance, server, proxy)
        server.execute(self.own, "CREATE TABLE orders (id int PRIMARY KEY, value int)")

    def change(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            statements = []
            kept, ever = dict(self.rows), list(self.ever)
            for _ in range(self.chance.randint(1, 8)):
                id, dice = self.chance.randint(1, 30), self.chance.random()
                if dice < 0.03:
                    self.rows.clear()
                    statements.append("TRUNCATE orders")
                elif id in self.rows and dice < 0.3:
                    del self.rows[id]
                    statements.append(f"DELETE FROM orders WHERE id = {id}")
                else:
                    put = f"INSERT INTO orders VALUES ({id}, {self.version(id)})"
                    statements.append(f"{put} ON CONFLICT (id) DO UPDATE SET value = excluded.value")
            with psycopg.connect(self.own) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
                if self.chance.random() < 0.2:
                    connection.rollback()
                    self.rows, self.ever = kept, ever


class KafkaWorld(World):
    kind = "kafka"
    flips = 0.2
    stumbles = 0.05  # a broker takes seconds to come back
    words: ClassVar[Record] = {"key": ["id"], "schema_strategy": "fixed", "schema": {"id": "bigint", "value": "bigint"}}
    has_log = True

    def __init__(self, chance: random.Random, server: KafkaServer) -> None:
        super().__init__(chance)
        self.server, self.topic = server, server.new_topic(partitions=3)
        self._begin()

    def _begin(self) -> None:
        options = {"bootstrap.servers": self.server.brokers, "transactional.id": f"rounds-{self.topic}", "log_level": 0}
        self._producer = Producer(options)
        self._producer.init_transactions(30)

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """The broker is killed, and comes back."""
        self.server.kill()
        yield
        self.server.start()
        self._begin()

    @property
    def settings(self) -> Record:
        return {"brokers": self.server.brokers, "topic": self.topic}

    def change(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            kept, ever = dict(self.rows), list(self.ever)
            self._producer.begin_transaction()
            for _ in range(self.chance.randint(1, 8)):
                id = self.chance.randint(1, 30)
                content: bytes | None = None
                if id in self.rows and self.chance.random() < 0.3:
                    del self.rows[id]
                else:
                    content = json.dumps({"id": id, "value": self.version(id)}).encode()
                self._producer.produce(self.topic, content, str(id).encode(), id % 3)
            assert self._producer.flush(30) == 0  # in the log, whatever becomes of the transaction
            if self.chance.random() < 0.2:
                self._producer.abort_transaction(30)
                self.rows, self.ever = kept, ever
            else:
                self._producer.commit_transaction(30)


class Game:
    """A stream that follows its world from test to test: the tests stay short, and the state grows old."""

    def __init__(self, world: World, folder: Path, spark: SparkForTests) -> None:
        self.world = world
        self.stream = Stream.make(folder / "lake", spark, world.kind, world.settings, **world.words)
        trace = folder / "trace"
        while not world.rows:  # without a record there is no table
            world.change()
        assert in_child(Stream.run, self.stream, TIDEMARK_FAULT_TRACE=str(trace)) == 0
        self.points = list(dict.fromkeys(trace.read_text().split()))
        self.could_be_seen = set(world.rows.items())
        if not world.full_runs:  # what was replaced before the first snapshot is in no log
            world.ever = list(world.rows.items())

    def play(self, number: int) -> None:
        """One round: a change, and then a kill, a source that stumbles, or a run whose outcome is right."""
        world, stream, chance = self.world, self.stream, self.world.chance
        if chance.random() < 0.9:
            world.change()
        if chance.random() < 0.4:
            point = chance.choice(self.points)
            ended = in_child(Stream.run, stream, TIDEMARK_FAULT=point)
            assert ended in (0, KILLED), f"round {number}, seed {SEED}, {point}"
            return
        if chance.random() < world.stumbles:
            with world.disturbed(), suppress(SourceError, TaskLost):
                stream.run()
            return
        full = world.full_runs and chance.random() < 0.3
        stream.run(full=full)
        if stream.last_run.reason == "resumed":  # it ended where the run that was killed would have
            stream.run(full=full)
        self.was_read()
        latest = self.latest()
        there = {id: value for id, value in latest.items() if id in world.rows}
        assert there == world.rows, f"round {number}, seed {SEED}"
        if full or not world.compares:
            assert latest.keys() == world.rows.keys(), f"round {number}, seed {SEED}"

    def settle(self) -> None:
        """After two quiet runs nothing is lost and nothing is there twice."""
        world, stream = self.world, self.stream
        stream.run(full=world.full_runs)
        stream.run(full=world.full_runs)
        self.was_read()
        assert self.latest() == world.rows, f"seed {SEED}"
        versions = Counter((r["id"], r[world.value]) for r in stream.changes() if r[world.value] is not None)
        ever = Counter(world.ever)
        assert versions <= ever, f"landed more often than it was, seed {SEED}"
        assert versions == ever if world.has_log else self.could_be_seen <= versions.keys(), f"lost, seed {SEED}"

    def was_read(self) -> None:
        self.could_be_seen |= set(self.world.rows.items())
        self.world.was_read()

    def latest(self) -> dict[int, int]:
        return {record["id"]: record[self.world.value] for record in self.stream.latest()}


Servers = Callable[[str], Any]


@contextmanager
def a_table(server: Servers, folder: Path) -> Iterator[World]:
    pg: PostgresServer = server("pg")
    with tcp_proxy("127.0.0.1", pg.port) as proxy:
        yield SqlWorld(random.Random(SEED), pg, proxy)


@contextmanager
def files(server: Servers, folder: Path) -> Iterator[World]:
    yield FilesWorld(random.Random(SEED), folder)


@contextmanager
def an_odata_service(server: Servers, folder: Path) -> Iterator[World]:
    cap: CapServer = server("cap_server")
    with FaultProxy(cap.url) as proxy:
        yield ODataWorld(random.Random(SEED), cap, proxy)


@contextmanager
def a_log_of_changes(server: Servers, folder: Path) -> Iterator[World]:
    pg: PostgresServer = server("logical_pg")
    with tcp_proxy("127.0.0.1", pg.port) as proxy:
        yield CdcWorld(random.Random(SEED), pg, proxy)


@contextmanager
def a_topic(server: Servers, folder: Path) -> Iterator[World]:
    broker: KafkaServer = server("broker")
    yield KafkaWorld(random.Random(SEED), broker)


WORLDS = [a_table, files, an_odata_service, a_log_of_changes, a_topic]


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: world.__name__)
def game(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> Iterator[Game]:
    folder = tmp_path_factory.mktemp("rounds")
    with request.param(request.getfixturevalue, folder) as world:
        yield Game(world, folder, spark)


@pytest.mark.parametrize("first", range(0, ROUNDS, AT_ONCE))
def test_rounds_of(game: Game, first: int) -> None:
    print(f"seed {SEED}, {ROUNDS} rounds")  # noqa: T201
    for number in range(first, min(first + AT_ONCE, ROUNDS)):
        game.play(number)
    game.settle()
