"""How long a store that does not answer is tried again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# Longer than a restart or a failover of a service takes, shorter than a lease lasts.
RIDE_OUT = 30.0

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0


def jitter() -> float:
    """Those who failed together should not try again together."""
    return random.uniform(0.5, 1.0)


@dataclass(frozen=True)
class Patience:
    """Rides out a short outage: pauses that grow, for `seconds` from the first failure on."""

    seconds: float = RIDE_OUT
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = jitter

    def begin(self) -> "Tries":
        return Tries(self)


@dataclass
class Tries:
    """The tries of one operation."""

    patience: Patience
    failures: int = field(default=0, init=False)
    first_failure: float = field(default=0.0, init=False)

    def pause(self) -> bool:
        """Waits before the next try. False, at once, if there should be none.

        The first failure is always followed by a second try: it may itself have taken longer than patience lasts.
        """
        now = self.patience.clock()
        if self.failures == 0:
            self.first_failure = now
        delay = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self.failures) * self.patience.jitter()
        if self.failures and now + delay - self.first_failure > self.patience.seconds:
            return False
        self.failures += 1
        self.patience.sleep(delay)
        return True
