"""What listeners hear of runs whose process was killed."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tidemark.clock import ManualClock
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import ChecksFailed, LakeError
from tidemark.runs import Confirm, Visible, recover
from tidemark.runs.events import Event, RunEnded, listening
from tidemark.runs.naming import named

pytestmark = pytest.mark.fast


class Shelf:
    """A subject that publishes nothing but what a test says it did."""

    address = "catalog/shop"

    def __init__(self, control: ControlDatabase) -> None:
        self.control = control
        self.published: Visible | None = None

    def visible(self) -> Visible | None:
        return self.published

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> Mapping[str, Any]:
        return {"rows": {"read": 3, "late": {"most": 1}}, "writes": ["catalog.shop"]}

    def fence(self, run: Any) -> None: ...

    def conclude(self, run: RunRecord, seen: Visible | None, confirm: Confirm) -> None: ...

    def undo(self, run: RunRecord) -> None: ...
    def repair(self, confirm: Confirm) -> None: ...
    def tidy(self, run_id: str) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


@pytest.fixture
def shelf(tmp_path: Path, clock: ManualClock) -> Iterator[Shelf]:
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db", clock)
    yield Shelf(control)
    control.close()


def heard_in_recovery(shelf: Shelf, clock: ManualClock) -> list[Event]:
    shelf.control.runs.begin(shelf.address, "dead")
    clock.advance(timedelta(seconds=90))
    heard: list[Event] = []
    with listening(heard.append):
        recover(shelf, "next", lambda: None)
    return heard


def test_a_run_that_died_before_it_published_is_heard_to_have_ended_abandoned(shelf, clock):
    (event,) = heard_in_recovery(shelf, clock)
    assert isinstance(event, RunEnded)
    assert (event.subject, event.run_id, event.status, event.seconds) == ("catalog/shop", "dead", "abandoned", 90)
    assert event.error is not None
    assert event.error.startswith("RunAbandoned: ")


def test_a_run_that_died_after_it_published_is_heard_to_have_published(shelf, clock):
    shelf.published = Visible("dead", 7)
    (event,) = heard_in_recovery(shelf, clock)
    assert isinstance(event, RunEnded)
    assert (event.run_id, event.status, event.error) == ("dead", "published", None)
    assert (dict(event.rows), event.writes) == ({"read": 3}, ("catalog.shop",))


def test_what_a_run_said_before_it_ended_is_kept_when_it_is_finished(shelf):
    shelf.published = Visible("dead", 7)
    shelf.control.runs.begin(shelf.address, "dead")
    shelf.control.runs.update("dead", error=ChecksFailed("compaction_keeps_rows: 1 row is not the same", []))
    recover(shelf, "next", lambda: None)
    record = shelf.control.runs.find(shelf.address, "dead")
    assert (record.status, record.error) == ("published", None)
    assert record.detail["ended with"].startswith("ChecksFailed: compaction_keeps_rows")


def test_errors_of_the_engine_of_checks_have_a_name_and_none_of_its_words() -> None:
    with duckdb.connect() as engine, pytest.raises(duckdb.Error) as wrong:
        engine.execute("SELECT error('canary-51')")
    error = named(wrong.value, "catalog/shop")
    assert type(error) is LakeError
    assert "canary" not in str(error)
    assert "maintain" in str(named(duckdb.OutOfMemoryException("canary-51"), "catalog/shop"))
