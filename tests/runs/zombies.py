"""A process that is stopped, loses its lease to another run, and is woken: it changes nothing and ends in an error."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.runs.kills import V
from tests.runs.places import Place
from tests.services.children import Child
from tidemark.errors import TidemarkError

LIMIT_SECONDS = 60
EXPIRED = "UPDATE tidemark_leases SET expires_at = '2020-01-01 00:00:00.000000'"


def wake_after_takeover(
    victim: V,
    work: Callable[[V], object],
    point: str,
    meanwhile: Callable[[V], object],
    place: Place,
    gate: Path,
    *,
    finished: bool = False,
) -> None:
    """Stops the work at the point, does what another run does meanwhile, wakes it, and looks at everything there is.

    `finished`: its row in the ledger was closed before it was stopped, so it ends without an error.
    """
    environment = {**os.environ, "TIDEMARK_FAULT": f"{point}:pause", "TIDEMARK_FAULT_GATE": str(gate)}
    zombie = Child(work, victim, environment=environment)
    pid = zombie.process.pid or 0
    try:
        limit = time.monotonic() + LIMIT_SECONDS
        while not gate.with_suffix(".reached").exists():
            assert zombie.process.is_alive(), f"it never came to {point}"
            assert time.monotonic() < limit, point
            time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
        gate.touch()
        with victim.subject.control._transactions.writing() as connection:  # as if a minute had passed
            connection.exec_driver_sql(EXPIRED)
        meanwhile(victim)
        before = place.fingerprint()
        os.kill(pid, signal.SIGCONT)
        code = zombie.wait()
    finally:
        if zombie.process.is_alive():
            zombie.process.kill()
    assert place.fingerprint() == before, f"woken at {point}, it changed something"
    errors = [each.__name__ for each in all_errors(TidemarkError)]
    assert code == (0 if finished else 1), zombie.stderr
    assert finished or any(f"tidemark.errors.{name}: " in zombie.stderr for name in errors), zombie.stderr


def all_errors(root: type[TidemarkError]) -> list[type[TidemarkError]]:
    return [root, *(each for below in root.__subclasses__() for each in all_errors(below))]
