"""Long work at a shell: a bar for what is counted, a line for what is not."""

import io

import pytest
from rich.console import Console

from tidemark.cli.running import Progress
from tidemark.progress import report

pytestmark = pytest.mark.fast


def drawn(progress: Progress) -> list[str]:
    screen = Console(record=True, width=120, file=io.StringIO())
    screen.print(progress._table())
    return screen.export_text().splitlines()


def test_chunks_are_one_bar_that_grows_and_other_steps_are_lines() -> None:
    progress = Progress("silver.a")
    with progress:
        report("read query")
        report("read query", 0.5)
        report("chunk 3 of 12: 2026-03-01 to 2026-04-01")
        step, early = drawn(progress)
        report("chunk 12 of 12: 2026-12-01 to 2026-12-31")
        _, late = drawn(progress)
    assert step.split() == ["✓", "read", "query", "0.5", "s"]
    assert early.startswith("3/12 ")
    assert early.rstrip().endswith("2026-03-01 to 2026-04-01")
    assert late.startswith("12/12 ")
    assert 0 < early.count("━") < late.count("━")
