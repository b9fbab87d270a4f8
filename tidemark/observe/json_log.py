"""Logs for programs: one JSON object a line for every event of a run and every log record of ours."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from threading import Lock
from traceback import extract_tb
from typing import Any, TextIO

from tidemark.clock import Clock, SystemClock
from tidemark.control.runs import ABANDONED
from tidemark.errors import TidemarkError
from tidemark.observe.packages import OURS
from tidemark.runs import events
from tidemark.runs.events import Event, RunEnded
from tidemark.terminal import standard_error

FAILED = ("failed", ABANDONED)


def start(stream: TextIO | None = None, clock: Clock | None = None) -> Callable[[], None]:
    """Begins to write; call what is returned to stop. The stream is kept: Dagster replaces stderr while a run executes."""
    lines = JsonLines(stream or standard_error(), clock or SystemClock())
    stop_listening = events.listen(lines.on_event)
    loggers = [logging.getLogger(name) for name in OURS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(lines)
        logger.setLevel(min(logger.level or logging.INFO, logging.INFO))

    def stop() -> None:
        stop_listening()
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(lines)
            logger.setLevel(level)

    return stop


def write_message(level: str, message: str) -> None:
    """One line that is of no run: what a command says to whoever started it."""
    JsonLines(standard_error(), SystemClock()).write(level, {"message": message})


class JsonLines(logging.Handler):
    """Writes each line at once and whole, so that lines of several threads do not mix."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        super().__init__()
        self._stream = stream
        self._clock = clock
        self._writing = Lock()

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        self._write(at, record.levelname.lower(), {"logger": record.name, "message": record.getMessage(), **_error(record)})

    def on_event(self, event: Event) -> None:
        failed = getattr(event, "error", None) is not None or (isinstance(event, RunEnded) and event.status in FAILED)
        values = {field.name: getattr(event, field.name) for field in fields(event)}
        self.write("error" if failed else "info", {"event": _snake(type(event).__name__), **values})

    def write(self, level: str, values: Mapping[str, Any]) -> None:
        self._write(self._clock.now(), level, values)

    def _write(self, at: datetime, level: str, values: Mapping[str, Any]) -> None:
        given = {name: _short(value) for name, value in values.items() if value not in (None, "", (), {})}
        line = {"time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "level": level, **given}
        # ASCII: whatever the encoding of the stream, and whatever is in a name, the line can be written.
        text = json.dumps(line, default=str) + "\n"
        with self._writing, suppress(OSError, ValueError):  # nobody reads any more, or it is closed
            self._stream.write(text)
            self._stream.flush()


def _short(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _error(record: logging.LogRecord) -> dict[str, str]:
    """The error's name and place. Its words only if they are ours: those of foreign errors may quote rows and passwords."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return {}
    name = type(error).__name__
    frames = extract_tb(error.__traceback__)
    place = {"at": f"{frames[-1].filename}:{frames[-1].lineno}"} if frames else {}
    return {"error": f"{name}: {error}" if isinstance(error, TidemarkError) else name, **place}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
