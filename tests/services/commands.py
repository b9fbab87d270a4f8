"""The command `tidemark` in processes of their own that need not import everything again: forked from one that has.

Ten seconds of imports for a command that works for one make most of a test of forty commands. What depends on the
configuration or on the terminal is imported by each of them, as ever; a few tests run the installed command itself.
"""

import atexit
import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from tempfile import TemporaryDirectory

IMPORTED = [
    "dagster", "dagster_aws.s3", "dagster_pyspark", "pyarrow.dataset", "pyspark.sql.connect.session", "pyiceberg.catalog",
    "spark_code.catalog.run", "spark_code.connectors.run", "spark_code.models.materialize", "spark_code.models.engine",
]  # fmt: skip
SECONDS = 300


def forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def ran(*arguments: str, cwd: Path, env: Mapping[str, str]) -> CompletedProcess[str]:
    """What a command said, and its exit code."""
    with TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        process = forks().Process(target=_run, args=(arguments, cwd, dict(env), said))
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            raise TimeoutExpired(["tidemark", *arguments], SECONDS)
        return CompletedProcess(["tidemark", *arguments], process.exitcode, *(path.read_text() for path in said))


def _run(arguments: tuple[str, ...], cwd: Path, env: dict[str, str], said: list[Path]) -> None:
    for number, path in zip((1, 2), said, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["tidemark", *arguments]
    from tidemark.cli import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()  # a process of this kind ends without
