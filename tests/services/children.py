"""Work in a process of its own that begins with all imports and with nothing of the test process.

A test process has threads of Kafka, DuckDB, Arrow, gRPC and Java's connection. A fork copies none of them, but all that
waits for them: such a child hangs as soon as it collects garbage. So children are forked from a process that was started
afresh, has imported what they need, and has one thread. They attach to the Spark of the test process, which is warm.
"""

import faulthandler
import multiprocessing.forkserver
import os
import pickle
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any
from unittest.mock import patch

# What depends on the configuration or on the terminal is imported by each child, as ever.
IMPORTED = [
    "pytest", "dagster", "dagster_aws.s3", "dagster_pyspark", "pyarrow.dataset", "pyspark.sql.connect.session",
    "pyiceberg.catalog.sql", "spark_code.catalog.run", "spark_code.connectors.run", "spark_code.models.materialize",
    "spark_code.models.engine", "tests.catalog.harness", "tests.catalog.troubled", "tests.connectors.harness",
    "tests.models.harness",
]  # fmt: skip
# Both libraries start a thread when they are imported, unless they are asked not to.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
# Less than a test may take, so that it is the child that is named.
SECONDS = 80
DUMP_SECONDS = 5
OUTPUTS = ("stdout", "stderr")
KILLED = -signal.SIGKILL


class ChildDidNotEnd(AssertionError):
    """A child had to be ended. Its stacks are in the text."""


@cache
def forker() -> ForkServerContext:
    """The process that children are forked from: one for each test process, which it ends with."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with patch.dict(os.environ, ONE_THREAD):
        multiprocessing.forkserver.ensure_running()
    return context


class Child:
    """A function that runs in a process of its own. It and its arguments are pickled: harnesses open themselves again."""

    def __init__(
        self, work: Callable[..., object], *arguments: Any, environment: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        self.stdout = self.stderr = ""
        self._folder = tempfile.mkdtemp(prefix="tidemark-child-")
        start = (dict(environment), cwd or Path.cwd(), self._folder)
        # Pickled here, so that it is unpickled in the child's own environment.
        task = bytes(ForkingPickler.dumps((work, arguments)))
        self.process: BaseProcess = forker().Process(target=_begin, args=(start, task))
        self.process.start()

    def wait(self, seconds: float = SECONDS) -> int:
        """Its exit code, or minus the signal that ended it."""
        try:
            self.process.join(seconds)
            code = self.process.exitcode
        finally:
            # Out of time, or the test is: it writes down where it stands, even inside of a library, and ends.
            if self.process.is_alive():
                os.kill(self.process.pid or 0, signal.SIGUSR1)
                self.process.join(DUMP_SECONDS)
                self.process.kill()
                self.process.join()
            self.stdout, self.stderr = (Path(self._folder, name).read_text() for name in OUTPUTS)
            print(self.stdout, self.stderr, sep="")  # noqa: T201 - shown if the test fails
            shutil.rmtree(self._folder)
        if code is None:
            raise ChildDidNotEnd(f"child did not end in {seconds} s\n{self.stderr}")
        return code


def in_child(work: Callable[..., object], *arguments: Any, **environment: str) -> int:
    """Does the work in a child; returns 0, 1 if it raised something, or minus the signal that ended it."""
    return Child(work, *arguments, environment=os.environ | environment).wait()


def _begin(start: tuple[dict[str, str], Path, str], task: bytes) -> None:
    environment, cwd, folder = start
    for number, name in zip((1, 2), OUTPUTS, strict=True):
        os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=True)
    signal.alarm(SECONDS + 40)  # nobody waits for it any more
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    work, arguments = pickle.loads(task)
    work(*arguments)
