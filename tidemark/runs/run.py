"""The run of every system: lease → recovery → ledger row → steps → verify → publish → mark → finish → tidy."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from tidemark.checks import CheckResult, failed
from tidemark.control import Lease, RunRecord
from tidemark.errors import ChecksFailed, LeaseLost, TidemarkError
from tidemark.faults import fault_point
from tidemark.lake_names import branch_of
from tidemark.runs.events import Advanced, RunStarted, StepEnded, StepStarted, emit
from tidemark.runs.naming import named
from tidemark.runs.reasons import Mode, Reason
from tidemark.runs.recovery import DeadRun, recover
from tidemark.runs.subject import Subject
from tidemark.runs.summary import run_ended

S = TypeVar("S", bound=Subject)

log = logging.getLogger(__name__)


class Run(Generic[S]):
    """One run of one subject. It holds the lease from `begin` to `end`; whatever happens in between, `end` is called.

    A system derives from it, or uses it as it is, and brings only its steps.
    """

    # Whether what failed its checks stays staged, to be looked at until the next run begins.
    keeps_failed_stage = False

    def __init__(self, subject: S, run_id: str, *, dagster_run: str | None = None, on_dead: DeadRun | None = None) -> None:
        self.subject = subject
        self.run_id = run_id
        self.dagster_run = dagster_run
        self.seconds: dict[str, float] = {}
        # Whether readers see what this run wrote: from then on it is finished, by it or for it, and never undone.
        self.published = False
        self._on_dead = on_dead
        self._held = ExitStack()
        self._lease: Lease | None = None
        self._error: BaseException | None = None
        self._ended = False
        self._began_at = time.monotonic()

    # --- begin and end -----------------------------------------------------------------------------------------------

    def begin(self, detail: Mapping[str, Any] | None = None) -> Self:
        """Takes the lease, settles what killed runs left behind, and enters the run into the ledger."""
        leases, runs = self.subject.control.leases, self.subject.control.runs
        self._lease = self._held.enter_context(leases.hold(self.subject.address, self.run_id))
        try:
            fault_point("run.after_lease")
            recover(self.subject, self.run_id, self.confirm, self._on_dead)
            fault_point("run.after_recovery")
            runs.begin(self.subject.address, self.run_id, dagster_run=self.dagster_run, detail=detail)
            fault_point("run.after_begin")
        except BaseException:
            self._held.close()
            raise
        emit(RunStarted(subject=self.subject.address, run_id=self.run_id, dagster_run=self.dagster_run))
        try:
            self.prepare()
        except BaseException as error:
            self._error = error
            self.end()
            raise
        return self

    def prepare(self) -> None:
        """What a system looks at once, under the lease and before its first step."""

    def end(self) -> None:
        """Closes a run that has not finished, and gives the lease back."""
        with self._held:
            self._held.callback(self.subject.close)
            if not self._ended:
                self._close_unfinished()

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._error = self._error or error
        self.end()

    def _close_unfinished(self) -> None:
        try:
            self.confirm()
        except LeaseLost:
            return  # another run has taken over, and has settled this one: whatever is there now is not ours to touch
        runs, is_visible = self.subject.control.runs, self._is_visible()
        error = named(self._error, self.subject.address, published=is_visible)
        if is_visible:
            # The next run finishes it; until then the ledger says what happened.
            runs.update(self.run_id, error=error, detail={"seconds": self.seconds})
            return
        if not (self.keeps_failed_stage and isinstance(error, ChecksFailed)):
            own = runs.find(self.subject.address, self.run_id)
            self.subject.fence(own)
            self.subject.undo(own)
        self._close(runs.finish(self.run_id, "failed", error=error, detail={"seconds": self.seconds}))

    def _is_visible(self) -> bool:
        """Whether readers see what this run wrote. A commit may have been made although its answer was an error; as long as
        nobody can look, it is taken for made: then nothing is undone, and the next run decides."""
        if self.published:
            return True
        try:
            seen = self.subject.visible()
        except TidemarkError:
            return True
        return seen is not None and seen.run_id == self.run_id

    # --- steps -------------------------------------------------------------------------------------------------------

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times a step, reports it, and gives whatever ends it a name that the ledger can keep."""
        started = time.monotonic()
        emit(StepStarted(subject=self.subject.address, run_id=self.run_id, step=name))
        wrong: str | None = None
        try:
            yield
        except TidemarkError as error:
            self._error, wrong = error, type(error).__name__
            raise
        except Exception as error:
            self._error = named(error, self.subject.address, name, published=self.published)
            wrong = type(self._error).__name__
            raise self._error from error
        except BaseException as error:
            self._error, wrong = error, type(error).__name__
            raise
        finally:
            took = time.monotonic() - started
            self.seconds[name] = round(self.seconds.get(name, 0) + took, 3)
            emit(StepEnded(subject=self.subject.address, run_id=self.run_id, step=name, seconds=took, error=wrong))

    def advance(self, unit: str, done: int, total: int | None, *, rows: int = 0, note: str = "") -> None:
        """Reports how far a long step is."""
        address, run_id = self.subject.address, self.run_id
        emit(Advanced(subject=address, run_id=run_id, unit=unit, done=done, total=total, rows=rows, note=note))

    def decide(self, mode: Mode, reason: Reason, words: str = "", **fields: Any) -> None:
        """Enters into the ledger what the run does and why. `words` is what varies: a policy, a column, a window."""
        detail = {**fields.pop("detail", {}), **({"reason": words} if words else {})}
        self.subject.control.runs.update(self.run_id, mode=mode, reason=reason, detail=detail, **fields)

    @property
    def branch(self) -> str:
        """Where the run stages rows in tables of the lake."""
        return branch_of(self.run_id)

    def confirm(self) -> None:
        """Before every effect that others see: is the lease still ours?"""
        assert self._lease is not None, "the run has begun"
        self._lease.confirm()

    def judge(self, results: Iterable[CheckResult], advice: str = "") -> None:
        """Remembers failed checks as the error of this run, for those who stop it without raising one (Dagster)."""
        wrong = failed(results)
        if wrong:
            words = "; ".join(f"{result.name}: {result.summary}" for result in wrong)
            # Of several tables that upkeep compacts, those before this one are published.
            kept = "what failed was not published" if self.published else "nothing was published and the mark did not move"
            self._error = ChecksFailed(f"{self.subject.address}: {kept}. {words}. {advice}".rstrip(), wrong)

    def require(self, results: Iterable[CheckResult], advice: str = "") -> None:
        """Stops the run if a check failed: nothing is published then."""
        self.judge(results, advice)
        if isinstance(self._error, ChecksFailed):
            raise self._error

    def finish(self, status: str, *, tidy: bool = True, **fields: Any) -> RunRecord:
        """Closes the row in the ledger; what is left to do is to tidy up, and the next run does it if this one cannot."""
        detail = {**fields.pop("detail", {}), "seconds": self.seconds}
        record = self.subject.control.runs.finish(self.run_id, status, error=None, detail=detail, **fields)
        fault_point("run.after_finish")
        self._close(record)
        if tidy:
            self._tidy()
        return record

    def _tidy(self) -> None:
        """The run has finished: what cannot be tidied up now is left to the next one, and is no reason to fail."""
        try:
            self.confirm()
            self.subject.tidy(self.run_id)
        except (TidemarkError, OSError) as error:
            log.warning("%s: run %s could not tidy up (%s)", self.subject.address, self.run_id, type(error).__name__)
        fault_point("run.after_tidy")

    def _close(self, record: RunRecord) -> None:
        self._ended = True
        emit(run_ended(record, seconds=time.monotonic() - self._began_at))
