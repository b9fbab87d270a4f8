"""How a run is coming along: small typed events for the terminal, logs, metrics and lineage. Nobody parses text."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something happened in a run. `subject` is an address, such as `catalog/shop`."""

    subject: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The run holds its lease and has a row in the ledger."""

    dagster_run: str | None = None


@dataclass(frozen=True, kw_only=True)
class StepStarted(Event):
    step: str


@dataclass(frozen=True, kw_only=True)
class StepEnded(Event):
    """`seconds` are of this time; `error` is the name of the error that ended it, if one did."""

    step: str
    seconds: float
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Advanced(Event):
    """`done` of `total` units are finished (`unit` is "slice", "chunk", …); None: nobody knows how many there are."""

    unit: str
    done: int
    total: int | None
    rows: int = 0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """The row in the ledger is closed. `tables` are the tables of the lake that the run read from and wrote to."""

    status: str
    mode: str | None
    reason: str | None
    seconds: float
    rows: Mapping[str, int] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    error: str | None = None


Listener = Callable[[Event], Any]

_listeners: list[Listener] = []


def emit(event: Event) -> None:
    """Hands the event to everybody who listens. A listener that fails is logged and never stops a run."""
    for listener in tuple(_listeners):
        try:
            listener(event)
        except Exception:
            with suppress(Exception):  # where the log cannot be written either
                log.warning("%s could not be notified of %s", listener, type(event).__name__, exc_info=True)


def listen(listener: Listener) -> Callable[[], None]:
    """From now on the listener gets every event of this process; call what is returned to stop that."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """The listener gets every event of this process while the block runs."""
    stop = listen(listener)
    try:
        yield
    finally:
        stop()
