"""What a system brings to the shared run: its subject. Everything else is written once, in `run.py` and `recovery.py`."""

# ruff: noqa: ARG002  (defaults take what others use)
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tidemark.control import ControlDatabase, Mark, RunRecord
from tidemark.runs.reasons import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemark.runs.upkeep import TableUpkeep

# Asks whether the lease is still ours, and raises if not.
Confirm = Callable[[], None]


@dataclass(frozen=True)
class Visible:
    """What readers see now, and the run that published it, as the published place itself records it."""

    run_id: str | None
    snapshot: int | None
    # What that run recorded about itself in the same commit.
    record: Mapping[str, Any] = field(default_factory=dict)


class Subject(Protocol):
    """A connection, a stream, a model: something that runs bring up to date, one run at a time.

    The methods below are called by the holder of the subject's lease only. Each may be called again after a crash.
    """

    @property
    def address(self) -> str:
        """`catalog/shop`: the name in leases, ledger, marks, logs, mails, metrics and commands."""
        ...

    @property
    def control(self) -> ControlDatabase: ...

    def visible(self) -> Visible | None:
        """What is published, and by which run; None if nothing is yet."""
        ...

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> Mapping[str, Any]:
        """Finishes a run that died after it had published: whatever follows publication, and the mark last.

        Returns what the ledger should keep of it. `confirm` is for effects that take a while.
        """
        ...

    def conclude(self, run: RunRecord, seen: Visible | None, confirm: Confirm) -> Mapping[str, Any] | None:
        """Finishes a run that had nothing to publish and died after it had moved the mark; None if it had not.

        Returns what the ledger should keep of it. A rollback that moves the mark first has not got that far.
        """
        ...

    def fence(self, run: RunRecord) -> None:
        """Makes sure that a run which has not published never will, should its process only be asleep."""
        ...

    def undo(self, run: RunRecord) -> None:
        """Removes what a run that had not published left where nobody reads. It has been fenced."""
        ...

    def repair(self, confirm: Confirm) -> None:
        """Called before every run: repairs what can be seen to be wrong. Cheap when nothing is."""
        ...

    def tidy(self, run_id: str) -> None:
        """Called after a run has finished: removes what only runs need."""
        ...

    def close(self) -> None:
        """Lets go of what the subject holds open at its source."""
        ...


class SimpleSubject:
    """For subjects without tables in the lake that hold nothing open: what they need not do themselves."""

    def conclude(self, run: RunRecord, seen: Visible | None, confirm: Confirm) -> Mapping[str, Any] | None:
        return None

    def repair(self, confirm: Confirm) -> None:
        return None

    def tidy(self, run_id: str) -> None:
        return None

    def close(self) -> None:
        return None

    def busy(self) -> str | None:
        return None

    def upkeep(self, keep_runs: int) -> "Sequence[TableUpkeep]":
        return ()

    def record_now(self) -> Mapping[str, Any]:
        return {}

    def compacted(self, before: int, after: int, confirm: Confirm) -> None:
        return None

    def forget(self, keep_runs: int) -> int:
        return 0


def moved_by(mark: Mark | None, run: RunRecord, seen: Visible | None) -> bool:
    """Whether the mark is where a run left it that published nothing, and on top of what readers see.

    A rollback moves the mark first: one that has not published is no more than begun.
    """
    if mark is None or mark.run_id != run.run_id or run.mode == Mode.ROLLBACK:
        return False
    return mark.snapshot is None or (seen is not None and mark.snapshot == seen.snapshot)
