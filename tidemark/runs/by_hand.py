"""Marks moved by a person: under the subject's lease, only back, and in the audit by a word of its own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict
from uuid import uuid4

from tidemark.control import AuditRow, ControlDatabase, Lease, Mark, Marks, actor
from tidemark.errors import StateError, UsageError
from tidemark.faults import fault_point


class Target(TypedDict, total=False):
    """Where a mark goes back to: a version that it had, or a value."""

    to_version: int
    to_value: str


def rewind(control: ControlDatabase, marks: Marks, address: str, reason: str, target: Callable[[Mark], Target]) -> Mark:
    """Moves the mark back to what `target` chooses, given where it is. `target` refuses whatever is not back."""
    with _held(control, address, "rewind", reason) as lease:
        _require_settled(control, address)
        mark = marks.get(address)
        if mark is None:
            raise UsageError(f"{address} has no mark: there is nothing to rewind, the next run reads everything anyway.")
        wanted = target(mark)
        fault_point("marks.before_rewind")
        lease.confirm()
        return marks.rewind(address, **wanted, expected_version=mark.version, actor=actor(), reason=reason)


def reset(control: ControlDatabase, marks: Marks, address: str, reason: str) -> int:
    """Takes the mark away; returns the version that counts this move. Works on a mark that cannot be read, too."""
    with _held(control, address, "reset", reason) as lease:
        version = marks.version(address)
        fault_point("marks.before_reset")
        lease.confirm()
        return marks.reset(address, expected_version=version, actor=actor(), reason=reason)


def versions_behind(moves: Sequence[AuditRow]) -> set[int]:
    """The versions that a mark passed on its way to where it is: whatever was read at one of them is behind it.

    For marks whose values nobody can compare. What was rewound or reset away is not on the way.
    """
    by_version = {move.to_version: move for move in moves}
    at = max(by_version, default=None)
    found: set[int] = set()
    while at is not None and (move := by_version.get(at)) is not None and move.kind != "reset":
        found.add(at)
        at = move.restored_version if move.kind == "rewind" else move.from_version
    return found


def _require_settled(control: ControlDatabase, address: str) -> None:
    """Where a killed run stands, table and mark may be of two runs: to rewind the one may leave it ahead of the other. A
    reset is always safe."""
    left = control.runs.running(address)
    if left:
        raise StateError(
            f"{address}: run {left[-1].run_id} was killed and is not settled yet. Run it once more, which does so, and "
            "rewind then; or reset the mark."
        )


@contextmanager
def _held(control: ControlDatabase, address: str, word: str, reason: str) -> Iterator[Lease]:
    """Keeps runs away meanwhile; if one is under way, the error says which. A killed run's row is left to the next run."""
    if not reason.strip():
        raise UsageError(f"{word} {address}: say why. The reason stays in the history of the mark.")
    with control.leases.hold(address, f"{word}-{uuid4()}") as lease:
        yield lease
