"""How a process at the shell ends: exit codes, what others registered, and nothing after that."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.fast

# The last object complains while the interpreter takes modules apart, as those of DuckDB do.
BEGIN = """
import atexit, os
from tidemark.cli.ending import end_at_once, leave
end_at_once()
atexit.register(print, "done")
class Late:
    def __del__(self, write=os.write):
        write(1, b"late")
late = Late()
"""


def ended(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("code", [0, 2, 130])
def test_the_exit_code_is_what_was_said_and_what_was_registered_is_done(code: int) -> None:
    assert ended(f"leave({code})") == (code, "done\n")


def test_a_reader_that_has_gone_makes_no_error() -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", BEGIN + "input(); print('x'); leave(0)"]
    with subprocess.Popen(command, text=True, env=buffered, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        assert (process.stderr.read(), process.wait()) == ("", 0)


def test_an_error_that_nobody_expected_is_still_one() -> None:
    assert ended("raise ValueError") == (1, "done\n")
