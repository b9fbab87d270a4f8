"""Minutes of trade and mishaps with a daemon at work, and then the verdict."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from platform_assets.instance import open_instance
from tests.soak.chaos import Chaos
from tests.soak.place import a_place, beginning_anew
from tests.soak.processes import end_all, services
from tests.soak.trade import Trade
from tests.soak.verdict import Verdict, judge, read_afresh, settle
from tidemark.config import load_config

# How long it may take after the last mishap until all is current: two retries, a pause and a schedule lie in it.
PATIENCE = 360
# What was killed last is up again by then.
RESTART = timedelta(seconds=45)
# Minutes of a soak that is to see every kind of mishap.
WHOLE = 10


def soak(folder: Path, minutes: float, seed: int, say: Callable[[str], None]) -> Verdict:
    """Everything, in a folder that does not exist yet."""
    began = time.monotonic()

    def said(words: str) -> None:
        say(f"{time.monotonic() - began:6.1f} s  {words}")

    with a_place(folder) as place, patch.dict(os.environ, place.environment):
        supervised, trade = services(place), Trade(place, seed)
        chaos = Chaos(place, supervised, seed, said)
        # As `tidemark doctor` does after an installation: Dagster's own processes must not create its files at once.
        open_instance(load_config(place.config)).dispose()
        said(f"servers are up; seed {seed}")
        try:
            for service in supervised:
                service.start()
            trade.start()
            chaos.cause(minutes * 60)
            said("it is calm again: " + ", ".join(f"{count} × {name}" for name, count in chaos.done.most_common()))
            chaos.calm()
            calm_since = datetime.now(UTC) + RESTART
            trade.stop()
            wrong = settle(place, trade.last_change, PATIENCE, said)
            said("all is current" if not wrong else "it did not become current")
        finally:
            for service in supervised:
                service.stop()
            end_all(place)
        said("a fresh full run")
        fresh = beginning_anew(place)
        wrong += read_afresh(fresh)
        verdict = judge(place, fresh, calm_since)
        verdict.wrong[:0] = wrong
        if minutes >= WHOLE:
            # By then every kind has had its turn; if not, a soak without mishaps would pass.
            missing = chaos.kinds - set(chaos.done)
            verdict.expect(not missing, f"these never happened: {', '.join(sorted(missing))}")
            idle = [each for each, ended in verdict.figures["upkeep"].items() if not {"published", "unchanged"} & set(ended)]
            verdict.expect(not idle, f"upkeep never got to {', '.join(idle)}")
        verdict.expect(sum(chaos.done.values()) > 0, "nothing went wrong at all")
        verdict.figures["restarts"] = {service.what: service.starts - 1 for service in supervised}
        for name, figure in verdict.figures.items():
            said(f"{name}: {figure}")
        for each in verdict.wrong:
            said(f"WRONG: {each}")
        return verdict
