"""The steps of a run of a stream, without Spark, a source or a lake: which effects it has, and in which order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tidemark.checks import CheckResult
from tidemark.connectors.contract import Slice
from tidemark.connectors.landing import SliceDone, StagedLanding
from tidemark.connectors.place import StreamPlace
from tidemark.connectors.run import StreamRun
from tidemark.connectors.stream import StreamSpec
from tidemark.control import ControlDatabase, Mark, RunRecord
from tidemark.errors import ChecksFailed, CursorInvalid, LeaseLost, TooManyDeleted
from tidemark.runs import Confirm, Visible

pytestmark = pytest.mark.fast


@dataclass
class Orders:
    """A stream that is only a name, a ledger, and a mark."""

    control: ControlDatabase
    stream: StreamSpec
    undone: list[str] = field(default_factory=list)
    name: str = "t1/shop/orders"

    @property
    def place(self) -> StreamPlace:
        return StreamPlace("t1", "shop", "orders")

    @property
    def address(self) -> str:
        return self.place.address

    def state(self) -> Mark | None:
        return self.control.sealed_marks("t1").get(self.address)

    def visible(self) -> Visible | None:
        return None

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> Mapping[str, Any]:
        return {}

    def conclude(self, run: RunRecord, seen: Visible | None, confirm: Confirm) -> Mapping[str, Any] | None:
        return None

    def fence(self, run: RunRecord) -> None:
        self.undone.append(f"fence {run.run_id}")

    def undo(self, run: RunRecord) -> None:
        self.undone.append(f"undo {run.run_id}")

    def repair(self, confirm: Confirm) -> None: ...

    def tidy(self, run_id: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Window:
    full: bool
    slices: tuple[Slice, ...] = (Slice(0), Slice(1))


@dataclass
class Engine:
    """Does nothing but say what it would do; the mark it really moves."""

    subject: Orders
    news: int = 2
    wrong: bool = False
    stopped: Window | None = None
    too_many: bool = False
    did: list[str] = field(default_factory=list)

    def resumed(self, state: Mark | None) -> Window | None:
        self.did.append("resume" if self.stopped else "nothing to resume")
        return self.stopped

    def planned(self, state: Mark | None, *, full: bool) -> Window:
        self.did.append(f"plan {'full' if full else 'incremental'}")
        return Window(full, tuple(Slice(number) for number in range(self.news)))

    def keep(self, plan: Window) -> None:
        self.did.append("keep")

    def land(self, plan: Window) -> tuple[Window, list[SliceDone]]:
        self.did.append("land")
        return plan, [SliceDone(each.number, 10, 9, 1, 0, (f"{each.number}.parquet",), ()) for each in plan.slices]

    def gone(self, plan: Window, *, guarded: bool) -> SliceDone:
        self.did.append("compare" if guarded else "compare without guard")
        if self.too_many and guarded:
            raise TooManyDeleted("t1/shop/orders: all of them.")
        return SliceDone(len(plan.slices), 0, 3, 0, 0, ("gone.parquet",), ())

    def stage(self, plan: Window, done: Sequence[SliceDone]) -> StagedLanding:
        self.did.append("stage")
        return StagedLanding(1, 2 if done else None, tuple(done), at_source=20 if done else None)

    def verify(self, plan: Window, staged: StagedLanding) -> list[CheckResult]:
        self.did.append("verify")
        return [CheckResult("no_duplicate_landing", not self.wrong, "1 records landed before")]

    def publish(self, plan: Window, staged: StagedLanding) -> int | None:
        self.did.append("publish")
        return staged.snapshot

    def move_state(self, plan: Window, staged: StagedLanding, reason: str) -> str | None:
        self.did.append("state")
        state, marks = self.subject.state(), self.subject.control.sealed_marks("t1")
        version = state.version if state else None
        marks.move(self.subject.address, version, "later", field="changed", run_id="r", actor="a", reason=reason)
        return "later"

    def acknowledge(self, value: str | None) -> None:
        if value is not None:
            self.did.append(f"acknowledge {value}")


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db")
    yield Orders(control, StreamSpec.model_validate({"id": "orders", "key": ["id"], "cursor": "changed"}))
    control.close()


def ran(orders: Orders, engine: Engine, run_id: str = "r1", **requested: bool) -> RunRecord:
    """Step by step, as every caller runs it."""
    with StreamRun(orders, run_id, engine) as run:
        run.land(run.plan(**requested))
        run.publish()
    return orders.control.runs.find(orders.address, run_id)


def with_state(orders: Orders, of: str = "changed") -> None:
    marks = orders.control.sealed_marks("t1")
    marks.move(orders.address, None, "earlier", field=of, run_id="r0", actor="a", reason="run")


def test_a_run_plans_lands_verifies_and_publishes_before_the_state_moves(orders):
    engine = Engine(orders)
    record = ran(orders, engine)
    assert engine.did == [
        "nothing to resume", "plan full", "keep", "land", "stage", "verify", "publish", "state", "acknowledge later",
    ]  # fmt: skip
    assert (record.status, record.mode, record.reason) == ("published", "full", "no state")
    assert record.detail["rows"] == {"read": 20, "landed": 18, "duplicates": 2, "quarantined": 0}


def test_a_source_hears_again_how_far_it_was_read_before_anything_else(orders):
    with_state(orders)
    engine = Engine(orders)
    assert ran(orders, engine).reason == "state found"
    assert engine.did[:3] == ["acknowledge earlier", "nothing to resume", "plan incremental"]


def test_a_check_that_fails_publishes_nothing_and_leaves_the_state(orders):
    with_state(orders)
    engine = Engine(orders, wrong=True)
    with pytest.raises(ChecksFailed, match="1 records landed before"):
        ran(orders, engine)
    assert engine.did[-1] == "verify"
    assert (orders.state().value, orders.undone) == ("earlier", ["fence r1", "undo r1"])


def test_records_that_the_source_has_and_nobody_read_stop_the_run(orders, monkeypatch):
    engine = Engine(orders)
    monkeypatch.setattr(Engine, "stage", lambda self, plan, done: StagedLanding(1, 2, tuple(done), at_source=21))
    with pytest.raises(ChecksFailed, match="1 more records than were read"):
        ran(orders, engine)
    assert "publish" not in engine.did


def test_a_stopped_run_is_gone_on_with_unless_everything_is_requested(orders):
    with_state(orders)
    stopped = Window(False)
    assert ran(orders, Engine(orders, stopped=stopped)).reason == "resumed"
    engine = Engine(orders, stopped=stopped)
    assert ran(orders, engine, "r2", full=True).reason == "requested"
    assert "resume" not in engine.did


def test_a_run_without_news_reads_nothing_and_is_unchanged(orders):
    engine = Engine(orders, news=0)
    assert ran(orders, engine).status == "unchanged"
    assert "land" not in engine.did


def test_deletions_are_looked_for_after_a_full_read_and_guarded_unless_allowed(orders):
    orders.stream = orders.stream.model_copy(update={"deletes": "compare"})
    engine = Engine(orders, too_many=True)
    with pytest.raises(TooManyDeleted):
        ran(orders, engine)
    assert engine.did[-2:] == ["land", "compare"]
    engine = Engine(orders, too_many=True)
    assert ran(orders, engine, "r2", allow_deletions=True).status == "published"
    assert "compare without guard" in engine.did
    engine = Engine(orders)
    ran(orders, engine, "r3")
    assert "compare" not in engine.did, "a part of the source says nothing about what it lacks"


def test_a_retry_that_begins_at_the_end_does_what_comes_before_first(orders):
    engine = Engine(orders)
    with StreamRun(orders, "r1", engine, full=True) as run:
        run.publish()
    assert engine.did[:4] == ["plan full", "keep", "land", "stage"]


def test_a_state_of_another_cursor_is_refused_before_the_source_is_asked(orders):
    with_state(orders, of="created")
    engine = Engine(orders)
    with pytest.raises(CursorInvalid, match="of the cursor 'created'"):
        ran(orders, engine)
    assert engine.did == []


def test_a_run_that_lost_its_lease_while_it_read_stages_nothing(orders, monkeypatch):
    engine = Engine(orders)
    own = Engine.land

    def taken_over(self: Engine, plan: Window) -> tuple[Window, list[SliceDone]]:
        with orders.control._transactions._open().begin() as connection:  # as if another run had taken over
            connection.exec_driver_sql("UPDATE tidemark_leases SET token = token + 1, run_id = 'another'")
        return own(self, plan)

    monkeypatch.setattr(Engine, "land", taken_over)
    with pytest.raises(LeaseLost):
        ran(orders, engine)
    assert (engine.did[-1], orders.undone) == ("land", [])
