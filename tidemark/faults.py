"""Named places where a test may break the process: one before and one after every external effect.

`TIDEMARK_FAULT=name` kills the process (SIGKILL) the first time that point is reached, `name:raise` raises, and
`name:pause` stops there until the file named by `TIDEMARK_FAULT_GATE` exists. Without the variable a point costs a lookup.
`TIDEMARK_FAULT_TRACE=file` appends every point passed, so that a test can list them all and needs no list of its own.
"""

import os
import signal
import time
from pathlib import Path

from tidemark.errors import TidemarkError


class InjectedFault(TidemarkError):
    """Raised by a fault point in a test."""


def fault_point(name: str) -> None:
    trace = os.environ.get("TIDEMARK_FAULT_TRACE")
    if trace:
        with Path(trace).open("a") as out:
            out.write(name + "\n")
    wanted, _, action = os.environ.get("TIDEMARK_FAULT", "").partition(":")
    if wanted != name:
        return
    if action == "raise":
        raise InjectedFault(f"fault injected at {name}")
    if action == "pause":
        gate = Path(os.environ["TIDEMARK_FAULT_GATE"])
        gate.with_suffix(".reached").touch()
        while not gate.exists():
            time.sleep(0.02)
        return
    os.kill(os.getpid(), signal.SIGKILL)
