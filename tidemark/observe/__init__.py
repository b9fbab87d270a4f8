"""What others see of runs while and after they happen: metrics, JSON logs, lineage events.

Nothing here is imported until it is requested: most commands need none of it.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock

from tidemark.config import Config
from tidemark.errors import ConfigError

LOG_VARIABLE = "TIDEMARK_LOG"
LOG_FORMS = ("text", "json")

_one_at_a_time = Lock()
_attached: set[str] = set()


def logs_json() -> bool:
    """Whether logs are requested as JSON."""
    form = os.environ.get(LOG_VARIABLE) or "text"
    if form not in LOG_FORMS:
        raise ConfigError(f"{LOG_VARIABLE}: '{form}' is no form of logs. Allowed: {', '.join(LOG_FORMS)}.")
    return form == "json"


def start(config: Config | None = None) -> Callable[[], None]:
    """Attaches the listeners that configuration and environment request; call what is returned to detach them and to flush.

    Each once a process: the command line starts them, and so does the code location that it imports. JSON logs need no
    configuration, and begin before it is read.
    """
    with _one_at_a_time, ExitStack() as attached:
        if logs_json() and "json" not in _attached:
            from tidemark.observe import json_log

            _attach(attached, "json", json_log.start())
        if config and config.openlineage and "lineage" not in _attached:
            from tidemark.observe import lineage

            _attach(attached, "lineage", lineage.start(config))
        started = attached.pop_all()

    def stop() -> None:
        with _one_at_a_time:
            started.close()

    return stop


def _attach(attached: ExitStack, name: str, stop: Callable[[], None]) -> None:
    _attached.add(name)
    attached.callback(_attached.discard, name)
    attached.callback(stop)
