"""Work on several subjects at a shell: progress while it goes on, and one failure does not stop the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import typer

from tidemark.cli.output import say
from tidemark.cli.progress import progress
from tidemark.errors import TidemarkError

T = TypeVar("T")


@dataclass
class Done(Generic[T]):
    """What came of it."""

    results: list[T] = field(default_factory=list)
    errors: list[TidemarkError] = field(default_factory=list)
    # By name, in order: the result, or the error.
    outcomes: dict[str, T | TidemarkError] = field(default_factory=dict)

    def end(self) -> None:
        """Ends the command as the first error says."""
        if self.errors:
            raise typer.Exit(self.errors[0].exit_code)


def one_by_one(names: Sequence[str], work: Callable[[str], T], show: Callable[[str, T], None] | None = None) -> Done[T]:
    """Does the work for each name, showing its steps, and shows what came of it.

    A single one that fails raises; of several the others still run.
    """
    done: Done[T] = Done()
    for name in names:
        try:
            with progress():
                result = work(name)
            done.results.append(result)
            done.outcomes[name] = result
            if show:
                show(name, result)
        except TidemarkError as error:
            if len(names) == 1:
                raise
            say(f"{type(error).__name__}: {error}", "error")
            done.errors.append(error)
            done.outcomes[name] = error
    return done
