"""What goes wrong meanwhile, out of a seed: processes are killed and paused, and servers are away for seconds."""

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.soak.place import Place
from tests.soak.processes import Service, send, start_command, tree, workers

COMMANDS = (
    ("catalog", "run", "shop"), ("catalog", "run", "notes", "--full"), ("stream", "run", "default/shop"),
    ("stream", "run", "default/deliveries"), ("model", "run", "silver.carts"), ("catalog", "maintain", "shop"),
)  # fmt: skip
# A lease ends after a minute without a heartbeat: the long pauses make zombies.
SHORT_PAUSE, LONG_PAUSE = (2, 15), (65, 80)


class Chaos:
    """One mishap after the other, with some seconds between them, until the time is up."""

    def __init__(self, place: Place, services: Sequence[Service], seed: int, say: Callable[[str], None]) -> None:
        self._place, self._services, self._say = place, services, say
        self._chance = random.Random(seed)
        self._later: list[threading.Timer] = []
        self._commands: list[subprocess.Popen[bytes]] = []
        self.done: Counter[str] = Counter()
        self._mishaps: dict[Callable[[], str | None], int] = {
            self._kill_worker: 5, self._pause_worker: 4, self._kill_service: 2, self._kill_group: 2, self._command: 3,
            self._outage: 5,
        }  # fmt: skip

    @property
    def kinds(self) -> set[str]:
        return {each.__name__.removeprefix("_") for each in self._mishaps}

    def cause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(min(self._chance.uniform(3, 9), max(0, until - time.monotonic())))
            mishap = self._chance.choices(list(self._mishaps), list(self._mishaps.values()))[0]
            words = mishap()
            if words:
                self.done[mishap.__name__.removeprefix("_")] += 1
                self._say(words)

    def calm(self) -> None:
        """Servers are back, and what was paused goes on; what was killed stays dead. Commands are waited for."""
        for timer in self._later:
            timer.cancel()
            timer.join()
            timer.function(*timer.args)
        for command in self._commands:
            with suppress(subprocess.TimeoutExpired):
                command.wait(120)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()
        self._later = [each for each in self._later if each.is_alive()] + [timer]

    # --- mishaps -----------------------------------------------------------------------------------------------------

    def _kill_worker(self) -> str | None:
        found = workers(self._place)
        if not found:
            return None
        victim = self._chance.choice(found)
        send(tree(victim), signal.SIGKILL)
        return f"killed the run in process {victim.pid}"

    def _pause_worker(self) -> str | None:
        found = workers(self._place)
        if not found:
            return None
        victim = self._chance.choice(found)
        paused = tree(victim)
        seconds = self._chance.uniform(*(LONG_PAUSE if self._chance.random() < 0.4 else SHORT_PAUSE))
        send(paused, signal.SIGSTOP)
        self._after(seconds, lambda: send(paused, signal.SIGCONT))
        return f"paused the run in process {victim.pid} for {seconds:.0f} s"

    def _kill_service(self) -> str | None:
        """The process alone: runs that it started go on without it."""
        return self._killed(os.kill, "")

    def _kill_group(self) -> str | None:
        """The process with its group: of the code server all runs, as a reboot does."""
        return self._killed(os.killpg, " with its group")

    def _killed(self, kill: Callable[[int, int], None], words: str) -> str | None:
        service = self._chance.choice(self._services)
        pid = service.pid
        if pid is None:
            return None
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
        return f"killed the {service.what}{words}"

    def _command(self) -> str:
        words = self._chance.choice(COMMANDS)
        command = start_command(self._place, *words)
        self._commands.append(command)
        if self._chance.random() < 0.3:
            return f"started: tidemark {' '.join(words)}"
        seconds = self._chance.uniform(4, 40)

        def kill() -> None:
            if command.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(command.pid, signal.SIGKILL)

        self._after(seconds, kill)
        return f"started, to be killed after {seconds:.0f} s: tidemark {' '.join(words)}"

    def _outage(self) -> str:
        name = self._chance.choice(list(self._place.lines))
        line, seconds = self._place.lines[name], self._chance.uniform(1, 20)
        line.down()
        self._after(seconds, line.up)
        return f"{name} is away for {seconds:.0f} s"
