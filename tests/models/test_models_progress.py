"""Long work at a shell: a bar for what is counted, a line for what is not."""

import io

import pytest
from rich.console import Console

from tidemark.cli.progress import LiveLines
from tidemark.runs.events import Advanced, StepEnded, StepStarted

pytestmark = pytest.mark.fast

RUN = {"subject": "model/silver.a", "run_id": "r1"}


def drawn(lines: LiveLines) -> list[str]:
    screen = Console(record=True, width=120, file=io.StringIO())
    screen.print(lines.moving())
    return screen.export_text().splitlines()


def test_chunks_are_one_bar_that_grows_and_other_steps_are_lines() -> None:
    left = io.StringIO()
    lines = LiveLines(Console(file=left, width=80), "starting", clock=lambda: 7.0)
    lines(StepStarted(**RUN, step="model"))
    lines(StepStarted(**RUN, step="read query"))
    lines(StepEnded(**RUN, step="read query", seconds=0.5))
    lines(Advanced(**RUN, unit="chunk", done=3, total=12, note="2026-03-01 to 2026-04-01"))
    (early,) = drawn(lines)
    lines(Advanced(**RUN, unit="chunk", done=12, total=12, note="2026-12-01 to 2026-12-31"))
    (late,) = drawn(lines)
    assert left.getvalue().splitlines() == ["model/silver.a", "  ✓ read query 0.5 s"]
    assert early.split()[1:4] == ["model", "0.0", "s"]
    assert early.rstrip().endswith("3/12 chunks, 2026-03-01 to 2026-04-01")
    assert late.rstrip().endswith("12/12 chunks, 2026-12-01 to 2026-12-31")
    assert 0 < early.count("━") < late.count("━")


def test_between_steps_a_terminal_shows_that_something_goes_on() -> None:
    (line,) = drawn(LiveLines(Console(file=io.StringIO()), "planning", clock=lambda: 1.0))
    assert line.split()[1:] == ["planning", "0.0", "s"]
