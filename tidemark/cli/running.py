"""Work on several things at a shell: progress while it goes on, and one failure does not stop the others."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import typer
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from tidemark.cli.output import messages
from tidemark.errors import TidemarkError
from tidemark.progress import listening

T = TypeVar("T")

# A step that tells how far it is: "chunk 3 of 12: …".
_COUNTED = re.compile(r"(?P<what>.+?) (?P<number>\d+) of (?P<total>\d+)(?:: (?P<told>.*))?")


@dataclass
class Done(Generic[T]):
    """What came of it."""

    results: list[T] = field(default_factory=list)
    errors: list[TidemarkError] = field(default_factory=list)

    def end(self) -> None:
        """Ends the command as the first error says."""
        if self.errors:
            raise typer.Exit(self.errors[0].exit_code)


def one_by_one(names: Sequence[str], work: Callable[[str], T], tell: Callable[[str, T], None] | None = None) -> Done[T]:
    """Does the work for each name, showing its steps, and tells what came of it.

    A single one that fails raises; of several the others still run.
    """
    done: Done[T] = Done()
    for name in names:
        try:
            with Progress(name):
                result = work(name)
            done.results.append(result)
            if tell:
                tell(name, result)
        except TidemarkError as error:
            if len(names) == 1:
                raise
            messages.print(f"{type(error).__name__}: {error}", style="red", markup=False, soft_wrap=True)
            done.errors.append(error)
    return done


class Progress:
    """The steps of a run as they come and go; plain lines where nobody watches."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._steps: dict[str, float | None] = {}
        self._counted: dict[str, re.Match[str]] = {}
        self._live = Live(console=messages, refresh_per_second=8, transient=True)
        self._listening = listening(self._on_step)

    def __enter__(self) -> None:
        self._listening.__enter__()
        if messages.is_terminal:
            self._live.start()

    def __exit__(self, *exc: Any) -> None:
        self._listening.__exit__(None, None, None)
        if messages.is_terminal:
            self._live.stop()

    def _on_step(self, step: str, seconds: float | None) -> None:
        counted = _COUNTED.fullmatch(step)
        if counted:
            self._counted[counted["what"]] = counted
        else:
            self._steps[step] = seconds
        if messages.is_terminal:
            self._live.update(self._table())
        elif seconds is None:
            messages.print(f"{self._title}: {step} …", highlight=False)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for step, seconds in self._steps.items():
            table.add_row("…" if seconds is None else "✓", step, "" if seconds is None else f"{seconds:.1f} s")
        for counted in self._counted.values():
            number, total = int(counted["number"]), int(counted["total"])
            # The one that is told of is under way, not done.
            bar = ProgressBar(total=total, completed=number - 1, width=30)
            table.add_row(f"{number}/{total}", bar, counted["told"] or counted["what"])
        return table
