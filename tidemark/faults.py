"""Named places where a test may break the process: one before and one after every external effect.

`TIDEMARK_FAULT=name` kills the process (SIGKILL) the first time that point is reached, `name#3` the third time.
`name:raise` raises, and `name:pause` stops there until the file named by `TIDEMARK_FAULT_GATE` exists. Without the variable
a point costs a lookup. `TIDEMARK_FAULT_TRACE=file` appends every point passed, so that a test can list them all and needs no
list of its own.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tidemark.errors import TidemarkError


class InjectedFault(TidemarkError):
    """Raised by a fault point in a test."""


# A test that looks at what there is at every point puts its own function here.
watcher: Callable[[str], None] | None = None
_reached: Counter[str] = Counter()


def fault_point(name: str) -> None:
    if watcher is not None:
        watcher(name)
    trace = os.environ.get("TIDEMARK_FAULT_TRACE")
    if trace:
        with Path(trace).open("a") as out:
            out.write(name + "\n")
    wanted, _, action = os.environ.get("TIDEMARK_FAULT", "").partition(":")
    wanted, _, times = wanted.partition("#")
    if wanted != name:
        return
    _reached[name] += 1
    if times and _reached[name] != int(times):
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
