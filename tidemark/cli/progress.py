"""How far runs are, on standard error: live lines on a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tidemark.cli.output import console_on, print_line
from tidemark.observe import logs_json
from tidemark.runs.events import Advanced, Event, StepEnded, StepStarted, listening
from tidemark.terminal import standard_error

BAR_WIDTH = 20


@contextmanager
def progress(waiting: str = "starting") -> Iterator[None]:
    """Shows the steps of all runs inside of the block; JSON logs say the same for themselves.

    `waiting` is what a terminal shows while no step is under way.
    """
    if logs_json():
        yield
        return
    console = console_on(standard_error())
    with ExitStack() as shown:
        if console.is_terminal:
            lines = LiveLines(console, waiting)
            shown.enter_context(lines.live)
            shown.enter_context(listening(lines))
        else:
            shown.enter_context(listening(PlainLines(console)))
        yield


@dataclass
class PlainLines:
    """A line when a step begins, and one when it ends."""

    console: Console

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._say(f"{event.subject}: {event.step} …")
            case StepEnded(error=None):
                self._say(f"{event.subject}: {event.step} took {event.seconds:.1f} s")
            case StepEnded():
                self._say(f"{event.subject}: {event.step} failed after {event.seconds:.1f} s: {event.error}")

    def _say(self, line: str) -> None:
        print_line(line, on=self.console)
        self.console.file.flush()


@dataclass
class Step:
    """A step that is under way."""

    name: str
    began: float
    advanced: Advanced | None = None
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))


class LiveLines:
    """A line for every step: moving while it is under way, and left standing when it has ended."""

    def __init__(self, console: Console, waiting: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._waiting = Step(waiting, clock())
        self._subject = ""
        self._open: list[Step] = []
        self.live = Live(
            get_renderable=self.moving,
            console=console,
            refresh_per_second=8,
            transient=True,
            # Else what libraries print would be shown too.
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._name(event.subject)
                self._open.append(Step(event.step, self._clock()))
            case Advanced() if self._open:
                self._open[-1].advanced = event
            case StepEnded():
                step = next((each for each in reversed(self._open) if each.name == event.step), None)
                if step is not None:
                    self._open.remove(step)
                    self._console.print(ended(step, event))
                self._waiting.began = self._clock()

    def _name(self, subject: str) -> None:
        """Whose steps follow, once."""
        if subject != self._subject:
            self._subject = subject
            self._console.print(Text(subject, style="bold"))

    def moving(self) -> Table:
        """The steps that are under way: the outer ones first."""
        lines = Table.grid(padding=(0, 1))
        lines.add_column(width=3, justify="right")
        for _ in range(4):
            lines.add_column(no_wrap=True, overflow="ellipsis")
        now = self._clock()
        for step in list(self._open) or [self._waiting]:
            lines.add_row(step.spinner, step.name, seconds(now - step.began), *amount(step, now))
        return lines


def amount(step: Step, now: float) -> Iterator[ProgressBar | str]:
    """How much is done, as a bar if it is known of how much, and how fast."""
    at = step.advanced
    if at is None:
        return
    if at.total:
        yield ProgressBar(total=at.total, completed=at.done, width=BAR_WIDTH)
    yield counted(at, now - step.began)


def ended(step: Step, event: StepEnded) -> Text:
    """What stays of a step."""
    mark, style = ("✓", "green") if event.error is None else ("✗", "red")
    line = Text.assemble("  ", (mark, style), f" {step.name} ", (seconds(event.seconds), "dim"))
    if event.error is not None:
        line.append(f" {event.error}", style="red")
    elif step.advanced is not None:
        line.append(f" {counted(step.advanced, event.seconds)}", style="dim")
    return line


def counted(at: Advanced, took: float) -> str:
    """`3/8 slices, 12,000 rows, 4,000 rows/s`."""
    of = f"/{at.total:,}" if at.total else ""
    words = [f"{at.done:,}{of} {at.unit}s"]
    if at.rows:
        words += [f"{at.rows:,} rows", f"{at.rows / max(took, 0.001):,.0f} rows/s"]
    elif at.note:
        words.append(at.note)
    return ", ".join(words)


def seconds(took: float) -> str:
    """`4.2 s`, and from a minute on `3:07`."""
    return f"{took:.1f} s" if took < 60 else f"{int(took) // 60}:{int(took) % 60:02d}"
