"""How far a run is, as a terminal and as a file get it, also while descriptor 2 is somebody else's."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

# A run as Dagster executes it: descriptor 2 is a file of its own meanwhile.
RUN = """
import os, sys, time
from tidemark import terminal
terminal.hold()
from tidemark.cli.progress import progress
from tidemark.runs.events import Advanced, StepEnded, StepStarted, emit
run = {"subject": "stream/t1/shop/orders", "run_id": "1"}
with progress():
    before = os.dup(2)
    os.dup2(os.open("captured", os.O_WRONLY | os.O_CREAT), 2)
    os.write(2, b"Setting default log level\\n")
    print('{"logger": "SQLQueryContextLogger"}', file=sys.stderr, flush=True)
    emit(StepStarted(**run, step="land"))
    for done in (1, 2):
        emit(Advanced(**run, unit="slice", done=done, total=4, rows=done * 500))
        time.sleep(0.3)
    emit(StepEnded(**run, step="land", seconds=2.0))
    emit(StepStarted(**run, step="publish"))
    emit(StepEnded(**run, step="publish", seconds=0.25, error="LostRace"))
    os.dup2(before, 2)
print("{}")
"""
COLOUR, MOVE = re.compile(r"\x1b\[[0-9;]*m"), re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def on_a_terminal(code: str, cwd: Path) -> str:
    """What a terminal of 80 columns shows of standard error, without colours; every move of the cursor is a new line."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], cwd=cwd, env=environment, stdout=pipe, stderr=theirs) as process:
        os.close(theirs)
        sent = b""
        try:
            while chunk := os.read(ours, 65_536):
                sent += chunk
        except OSError:  # the other end is closed
            pass
        assert process.stdout is not None
        assert process.stdout.read() == b"{}\n"
    os.close(ours)
    assert process.returncode == 0
    return MOVE.sub("\n", COLOUR.sub("", sent.decode()))


def test_a_terminal_shows_a_line_for_every_step_while_standard_error_is_replaced(tmp_path: Path) -> None:
    shown = on_a_terminal(RUN, tmp_path)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "stream/t1/shop/orders" in lines
    assert "✓ land 2.0 s 2/4 slices, 1,000 rows, 500 rows/s" in lines
    assert "✗ publish 0.2 s LostRace" in lines
    assert "Setting default log level" not in shown
    assert "SQLQueryContextLogger" not in shown


def test_a_step_whose_amount_is_known_has_a_bar_a_rate_and_the_time_it_took_so_far(tmp_path: Path) -> None:
    shown = on_a_terminal(RUN, tmp_path)
    assert re.search(r"land \d\.\d s ━+[╸╺]?━* 1/4 slices, 500 rows, [\d,]+ rows/s", shown)


def test_a_file_gets_plain_lines_when_a_step_begins_and_when_it_ends(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"
    assert done.stderr.splitlines() == [
        "stream/t1/shop/orders: land …",
        "stream/t1/shop/orders: land took 2.0 s",
        "stream/t1/shop/orders: publish …",
        "stream/t1/shop/orders: publish failed after 0.2 s: LostRace",
    ]
