"""A run in a real process that is killed for real, on the JVM that is already warm.

The child is a fork of the test process: it talks to the same JVM while its parent waits, so a kill costs seconds instead of
a JVM's start. Fault points lie between calls, never inside one, so the parent finds the JVM's connection as it left it.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable

from spark_code.platform import Platform
from tests.catalog.harness import Catalog


def run_in_child(catalog: Catalog, **environment: str) -> int:
    """Runs the catalogue in a forked process; returns its exit code, or minus the signal that ended it."""
    return in_child(catalog.platform, lambda: catalog.attempt().success, **environment)


def in_child(platform: Platform, work: Callable[[], bool], **environment: str) -> int:
    """Does the work in a forked process; returns its exit code, or minus the signal that ended it."""
    platform.control.close()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ |= environment
            code = 0 if work() else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


KILLED = -signal.SIGKILL
