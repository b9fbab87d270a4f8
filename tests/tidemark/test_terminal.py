"""Standard error that nobody can write to ends no command."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.fast

SAYS = """
from rich.console import Console
from tidemark import terminal
terminal.hold()
for _ in range(3):
    Console(file=terminal.standard_error()).print("a step")
terminal.standard_error().flush()
print("done", flush=True)
"""


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "2> >(true)"])
def test_a_standard_error_that_is_full_closed_or_gone_loses_words_and_nothing_else(where: str) -> None:
    command = f'"$0" -c "$1" {where}'
    done = subprocess.run(["bash", "-c", command, sys.executable, SAYS], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n")


ENDS = """
import sys
from tidemark.cli.ending import end_at_once, leave
end_at_once()
sys.stdout.write("a result")
leave(0)
"""


@pytest.mark.parametrize(("where", "code"), [(">/dev/full", 1), ("| true", 0)])
def test_a_result_that_did_not_arrive_is_a_failure_unless_its_reader_has_gone(where: str, code: int) -> None:
    command = f'"$0" -c "$1" {where}; exit ${{PIPESTATUS[0]}}'
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", command, sys.executable, ENDS], env=buffered, check=False)
    assert done.returncode == code
