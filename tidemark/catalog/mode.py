"""Full or incremental, and why: a closed list."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tidemark.catalog.marker import Marker


class Mode(StrEnum):
    FULL = "full"
    INCREMENTAL = "incremental"


class Reason(StrEnum):
    FORCED = "forced"
    FLAG_OFF = "incremental extraction is off"
    NO_STATE = "no state"
    NO_MARKER = "no marker"
    CORRUPT_MARKER = "corrupt marker"
    FUTURE_MARKER = "marker in the future"
    MARKER_AHEAD = "marker ahead of state"
    SOURCE_REPLACED = "source replaced"
    PREREQUISITES_MET = "marker and state agree"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that decides the mode of a run."""

    forced: bool
    enabled: bool
    has_state: bool
    marker: Marker
    recorded: datetime | None
    now: datetime
    identity_before: str | None
    identity_now: str


def decide(found: Situation) -> tuple[Mode, Reason]:
    """The first reason that applies. An old marker on a newer state is safe; the other way round is not."""
    moment = found.marker.moment
    full: list[tuple[bool, Reason]] = [
        (found.forced, Reason.FORCED),
        (not found.enabled, Reason.FLAG_OFF),
        (not found.has_state, Reason.NO_STATE),
        (found.marker.corrupt, Reason.CORRUPT_MARKER),
        (moment is None, Reason.NO_MARKER),
        (found.marker.in_future(found.now), Reason.FUTURE_MARKER),
        (moment is not None and (found.recorded is None or moment > found.recorded), Reason.MARKER_AHEAD),
        (found.identity_before not in (None, found.identity_now), Reason.SOURCE_REPLACED),
    ]
    for applies, reason in full:
        if applies:
            return Mode.FULL, reason
    return Mode.INCREMENTAL, Reason.PREREQUISITES_MET
