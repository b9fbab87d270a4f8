"""Full or incremental, and why."""

from dataclasses import dataclass
from datetime import datetime

from tidemark.catalog.marker import Marker
from tidemark.runs.reasons import Mode, Reason


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

    @property
    def source_replaced(self) -> bool:
        """Another server, database or file answers, whatever the reason for the mode is."""
        return self.identity_before not in (None, self.identity_now)


def decide(found: Situation) -> tuple[Mode, Reason]:
    """The first reason that applies. An old marker on a newer state is safe; the other way round is not."""
    moment = found.marker.moment
    full: list[tuple[bool, Reason]] = [
        (found.forced, Reason.REQUESTED),
        (not found.enabled, Reason.INCREMENTAL_OFF),
        (not found.has_state, Reason.NO_STATE),
        (found.marker.corrupt, Reason.CORRUPT_MARKER),
        (moment is None, Reason.NO_MARKER),
        (found.marker.in_future(found.now), Reason.FUTURE_MARKER),
        (moment is not None and (found.recorded is None or moment > found.recorded), Reason.MARKER_AHEAD),
        (found.source_replaced, Reason.SOURCE_REPLACED),
    ]
    for applies, reason in full:
        if applies:
            return Mode.FULL, reason
    return Mode.INCREMENTAL, Reason.STATE_FOUND
