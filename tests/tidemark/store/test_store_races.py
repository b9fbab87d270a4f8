"""Two processes want the same object: exactly one gets it."""

import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidemark.store import ObjectStore

ROUNDS = 50


class Racers:
    def __init__(self, store: ObjectStore) -> None:
        self.names = ("red", "blue")
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.tidemark.store.racer", pickle.dumps(store).hex(), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in self.names
        ]

    def race(self, order: str) -> str:
        """Both write at once; gives the winner's name."""
        for process in self._processes:
            assert process.stdin
            process.stdin.write(order + "\n")
            process.stdin.flush()
        answers = []
        for process in self._processes:
            assert process.stdout
            answers.append(process.stdout.readline().strip())
        assert sorted(answers) == ["lost", "won"], order
        return self.names[answers.index("won")]

    def stop(self) -> None:
        for process in self._processes:
            process.communicate()


@pytest.fixture
def racers(store: ObjectStore) -> Iterator[Racers]:
    racers = Racers(store)
    yield racers
    racers.stop()


def test_of_two_processes_one_creates_the_object(store: ObjectStore, racers: Racers) -> None:
    for number in range(ROUNDS):
        winner = racers.race(f"absent claims/{number}")
        assert store.read(f"claims/{number}").startswith(winner.encode())


def test_of_two_processes_one_replaces_the_object(store: ObjectStore, racers: Racers) -> None:
    etag = store.put("mark", b"start")
    for _ in range(ROUNDS):
        winner = racers.race(f"unchanged mark {etag}")
        found = store.find("mark")
        assert found is not None
        assert found.body == winner.encode() + etag.encode()
        etag = found.etag
