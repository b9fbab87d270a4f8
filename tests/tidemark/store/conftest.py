from pathlib import Path

import pytest

from tidemark.store import LocalStore, ObjectStore
from tidemark.store.patience import Patience


class FreeTime:
    """Time that passes only in pauses, and costs none."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)

    def patience(self, seconds: float) -> Patience:
        return Patience(seconds, self.sleep, lambda: self.now)


@pytest.fixture
def free_time() -> FreeTime:
    return FreeTime()


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "store"))


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.fast), pytest.param("s3_store", marks=pytest.mark.service)])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Every kind of store: what they promise is the same."""
    found: ObjectStore = request.getfixturevalue(request.param)
    return found
