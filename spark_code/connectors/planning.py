"""A new plan: the window as the source's own present ends it, and its slices."""

import random
import time
from typing import Any

from spark_code.connectors.plan import IngestPlan
from spark_code.connectors.slices import LASTING
from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.contract import CheckpointConnector, InputState, Window, fixed_window
from tidemark.control import Mark
from tidemark.errors import CursorBackwards, SourceError

# As many as a catalogue reads over, unless its connection says otherwise.
MOST_CONNECTIONS = 8
# Seconds between attempts to plan.
PAUSES = (0.5, 2)


def planned(subject: StreamSubject, run_id: str, state: Mark | None, *, full: bool) -> IngestPlan:
    """A new plan. A source that stumbles is asked again, as it is when slices are read."""
    for pause in PAUSES:
        try:
            return _planned(subject, run_id, state, full=full)
        except LASTING:
            raise
        except SourceError:
            time.sleep(pause * random.uniform(0.5, 1))
    return _planned(subject, run_id, state, full=full)


def _planned(subject: StreamSubject, run_id: str, state: Mark | None, *, full: bool) -> IngestPlan:
    stream, connector = subject.stream, subject.connector
    value = None if full or state is None else state.value
    given = InputState(stream.id, stream.cursor_field or "", value)
    if isinstance(connector, CheckpointConnector):
        slices = connector.pending(stream, given.cursor_value, tasks(subject))
        fields = connector.fields(stream, slices)
        return IngestPlan.made(subject, run_id, state, Window(), slices, fields, full=full)
    committed = None if given.cursor_value is None else stream.parse_cursor(given.cursor_value)
    now = connector.now(stream)
    window = fixed_window(stream, committed, now)
    if backwards(subject, window, committed, now):
        full, window = True, fixed_window(stream, None, now)
    slices = connector.slices(stream, window, 1 if window.empty else tasks(subject))
    return IngestPlan.made(subject, run_id, state, window, slices, connector.discover(stream), full=full)


def tasks(subject: StreamSubject) -> int:
    """How many slices are read at the same time: each has a connection of its own, and a source gives only so many."""
    return min(subject.platform.parallelism, MOST_CONNECTIONS)


def backwards(subject: StreamSubject, window: Window, committed: Any, now: Any) -> bool:
    """A source whose present lies before what was committed runs backwards: it was restored, or its clock was set.

    That is an error, unless the manifest says that everything is read then.
    """
    if not (window.empty and committed is not None and now is not None and now < committed):
        return False
    if subject.stream.full_refresh_fallback:
        return True
    raise CursorBackwards(
        f"{subject.address}: the source's own present is earlier than the committed cursor, by more than the safety "
        "window. Was the source restored, or its clock set back? Nothing was read. Fix the clock, or read "
        f"everything with `tidemark stream run {subject.name} --full`; `full_refresh_fallback: true` does so by itself."
    )
