"""One run of one stream, as a story: plan → land → verify → publish, and the state last. What needs Spark is given to it."""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from tidemark.checks import CheckResult
from tidemark.connectors import lateness
from tidemark.connectors.contract import OutputState, Slice
from tidemark.connectors.landing import SliceDone, StagedLanding
from tidemark.connectors.place import StreamPlace
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.verification import count_agrees
from tidemark.control import Mark
from tidemark.errors import CursorInvalid
from tidemark.faults import fault_point
from tidemark.runs import Mode, Reason, Run, Subject


class Plan(Protocol):
    """What is read, fixed before anything is."""

    @property
    def full(self) -> bool: ...

    @property
    def slices(self) -> Sequence[Slice]: ...


class Stream(Subject, Protocol):
    """What the run needs to know of its stream."""

    @property
    def name(self) -> str: ...

    @property
    def stream(self) -> StreamSpec: ...

    @property
    def place(self) -> StreamPlace: ...

    def state(self) -> Mark | None: ...


P = TypeVar("P", bound=Plan)
S = TypeVar("S", bound=Stream)


class StreamEngine(Protocol[P]):
    """What the run of a stream needs its source, Spark and the lake for. Each method is one effect, in this order."""

    def resumed(self, state: Mark | None) -> P | None:
        """The plan of a run that was stopped half-way and can be gone on with; None if there is none."""
        ...

    def planned(self, state: Mark | None, *, full: bool) -> P:
        """A new plan, as the source's own present ends it. It may be full although nobody wanted that."""
        ...

    def keep(self, plan: P) -> None:
        """Keeps the plan for whoever takes over from this run."""
        ...

    def land(self, plan: P) -> tuple[P, list[SliceDone]]:
        """Reads what is missing of the slices into files. The plan has the fields that were found on the way."""
        ...

    def gone(self, plan: P, *, guarded: bool) -> SliceDone:
        """What a complete listing of the source lacks, as one more slice of deletions; `guarded` refuses too many."""
        ...

    def stage(self, plan: P, done: Sequence[SliceDone]) -> StagedLanding:
        """Puts the files onto the run's branch."""
        ...

    def verify(self, plan: P, staged: StagedLanding) -> list[CheckResult]:
        """What a landing must satisfy before it is published."""
        ...

    def publish(self, plan: P, staged: StagedLanding) -> int | None:
        """Makes it visible; returns the snapshot that is published then, if there was something to publish."""
        ...

    def move_state(self, plan: P, staged: StagedLanding, reason: str) -> str | None:
        """Moves the state to where the run got. Returns where it is."""
        ...

    def acknowledge(self, value: str | None) -> None:
        """Reports to the source how far it was read: now, or by the next run."""
        ...


class StreamRun(Run[S], Generic[S, P]):
    """One run of one stream."""

    def __init__(
        self,
        subject: S,
        run_id: str,
        engine: StreamEngine[P],
        *,
        full: bool = False,
        allow_deletions: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(subject, run_id, **options)
        self.engine = engine
        # What was requested of the whole run, for a step that has to plan first.
        self._requested = {"full": full, "allow_deletions": allow_deletions}
        self._plan: P | None = None
        self._staged: StagedLanding | None = None
        self._deletions_allowed = False

    def plan(self, *, full: bool = False, allow_deletions: bool = False) -> P:
        """The window and its slices, fixed before anything is read; or those of a run that was stopped half-way."""
        self._deletions_allowed = allow_deletions
        subject, engine, state = self.subject, self.engine, self.subject.state()
        if state is not None and not full and state.field != subject.stream.cursor_field:
            raise CursorInvalid(
                f"{subject.address}: its state is of the cursor '{state.field}', and the manifest names another. Put "
                f"that back, or `tidemark stream reset {subject.name}` and read everything."
            )
        # Again: the last run may have been stopped before it could.
        engine.acknowledge(state.value if state else None)
        resumed = None if full else engine.resumed(state)
        if resumed is not None:
            plan, reason = resumed, Reason.RESUMED
        else:
            plan = engine.planned(state, full=full or state is None)
            backwards = Reason.CURSOR_BACKWARDS if plan.full else Reason.STATE_FOUND
            reason = Reason.REQUESTED if full else Reason.NO_STATE if state is None else backwards
        engine.keep(plan)
        self.decide(Mode.FULL if plan.full else Mode.INCREMENTAL, reason, detail={"slices": len(plan.slices)})
        fault_point("ingest.after_plan")
        self._plan = plan
        return plan

    def land(self, plan: P) -> StagedLanding:
        """Reads what is missing of the slices and stages their files on the run's branch."""
        stream, done = self.subject.stream, list[SliceDone]()
        compares = stream.deletes == "compare" and (plan.full or stream.cursor is None)
        if plan.slices or compares:
            plan, done = self.engine.land(plan)
            if compares:
                done.append(self.engine.gone(plan, guarded=not self._deletions_allowed))
            self.confirm()
        self._plan, self._staged = plan, self.engine.stage(plan, done)
        return self._staged

    def verify(self) -> list[CheckResult]:
        """What a landing must satisfy before it is published."""
        plan, staged = self._landing()
        results = [*self.engine.verify(plan, staged), self._counted(plan, staged)]
        self.judge(results)
        return results

    def publish(self) -> OutputState | None:
        """Verifies once more, publishes, and moves the state: what makes the run count."""
        plan, staged = self._landing()
        with self.step("verify"):
            self.require(self.verify())
        self.confirm()
        with self.step("publish"):
            snapshot = self.engine.publish(plan, staged)
            self.published = staged.snapshot is not None
        fault_point("ingest.before_state")
        with self.step("state"):
            value = self.engine.move_state(plan, staged, "full run" if plan.full else "incremental run")
        fault_point("ingest.after_state")
        status = "unchanged" if staged.snapshot is None else "published"
        self.finish(status, base_snapshot=staged.base, snapshot=snapshot or staged.base, detail=self.summary())
        self.engine.acknowledge(value)
        stream = self.subject.stream
        if value is None or stream.cursor_field is None:
            return None
        return OutputState(stream.id, stream.cursor_field, value, staged.landed)

    def summary(self) -> dict[str, Any]:
        """The landing in numbers; no value of state among them."""
        _, staged = self._landing()
        return {
            "slices": len(staged.slices),
            "rows": {
                "read": staged.read,
                "landed": staged.landed,
                "duplicates": sum(each.duplicates for each in staged.slices),
                "quarantined": sum(each.quarantined for each in staged.slices),
            },
            "late": lateness.added(each.late for each in staged.slices),
            "writes": [f"lake.{self.subject.place.table}"],
        }

    def _landing(self) -> tuple[P, StagedLanding]:
        """What was landed. A run may begin at a later step, as a retry from the failed one does: then it lands first."""
        if self._plan is None or self._staged is None:
            with self.step("plan"):
                plan = self.plan(**self._requested)
            with self.step("land"):
                self.land(plan)
        assert self._plan is not None
        assert self._staged is not None
        return self._plan, self._staged

    def _counted(self, plan: P, staged: StagedLanding) -> CheckResult:
        without_cursor = {each.number for each in plan.slices if each.nulls}
        read = sum(each.read + each.quarantined for each in staged.slices if each.number not in without_cursor)
        return count_agrees(staged.at_source, read, self.subject.stream)
