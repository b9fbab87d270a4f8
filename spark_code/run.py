"""The frame that a run of every system has: a lease from beginning to end, timed steps, and an error the ledger can name."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from tidemark.checks import CheckResult, failed
from tidemark.control.leases import Lease, Leases
from tidemark.errors import ChecksFailed, PartialRun
from tidemark.progress import report


class RunFrame:
    """A run holds the lease of its subject from `begin` to `end`; whatever happens in between, `end` is called."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.seconds: dict[str, float] = {}
        self._held = ExitStack()
        self._lease: Lease | None = None
        self._error: BaseException | None = None

    def _hold(self, leases: Leases, subject: str, prepare: Callable[[], None]) -> None:
        """Takes the lease and prepares; a run that cannot begin does not keep it."""
        self._lease = self._held.enter_context(leases.hold(subject, self.run_id))
        try:
            prepare()
        except BaseException:
            self._held.close()
            raise

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times a step and remembers its error, so that the ledger can name it."""
        started = time.monotonic()
        report(name)
        try:
            yield
        except BaseException as error:
            self._error = error
            raise
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0) + time.monotonic() - started, 3)
            report(name, self.seconds[name])

    def _confirm(self) -> None:
        """Before every effect that others see: is the lease still ours?"""
        if self._lease is None:
            raise PartialRun(f"run {self.run_id} has not begun.")
        self._lease.confirm()

    def _note(self, results: Iterable[CheckResult], subject: str, advice: str = "") -> None:
        """A failed check stops the Dagster run without an exception of ours: the ledger names it all the same."""
        wrong = failed(results)
        if wrong:
            told = "; ".join(f"{result.name}: {result.summary}" for result in wrong)
            self._error = ChecksFailed(
                f"{subject}: nothing was published and the mark did not move. {told}. {advice}".rstrip(), wrong
            )
