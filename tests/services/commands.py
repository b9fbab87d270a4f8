"""The command `tidemark` in processes of their own that need not import everything again.

Ten seconds of imports for a command that works for one make most of a test of forty commands. What depends on the
configuration or on the terminal is imported by each of them, as ever; a few tests run the installed command itself.
"""

import atexit
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

from tests.services.children import Child


def ran(*arguments: str, cwd: Path, env: Mapping[str, str]) -> CompletedProcess[str]:
    """What a command said, and its exit code."""
    child = Child(_run, arguments, environment=env, cwd=cwd)
    code = child.wait()
    return CompletedProcess(["tidemark", *arguments], code, child.stdout, child.stderr)


def _run(arguments: tuple[str, ...]) -> None:
    sys.argv = ["tidemark", *arguments]
    from tidemark.cli import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()  # a process of this kind ends without
