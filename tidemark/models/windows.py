"""Windows of time: the partitions of a model. Each can be rebuilt, and the mark alone says how far a model has got."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from tidemark.models.steps import Step

Span = Literal["hour", "day", "week", "month"]
# As Dagster writes the keys of its partitions.
FORMATS: dict[Span, str] = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "week": "%Y-%m-%d", "month": "%Y-%m-%d"}
BEGINNINGS: dict[Span, str] = {"hour": "a full hour", "day": "midnight", "week": "a Monday", "month": "the first of a month"}


@dataclass(frozen=True)
class TimeWindow:
    """From `start` on, up to `end` and without it; both in UTC."""

    start: datetime
    end: datetime

    def told(self) -> str:
        return f"{_short(self.start)} … {_short(self.end)}"


def moment_of(given: Any) -> datetime:
    """What a person writes as a moment, in UTC; a ValueError if it is none."""
    if isinstance(given, date):
        given = given.isoformat()
    if not isinstance(given, str):
        raise ValueError("must be a date or a moment, such as 2026-01-01.")
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise ValueError("must be a date or a moment, such as 2026-01-01.") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def beginning(by: Span, moment: datetime) -> datetime:
    """Where the window begins that a moment is in; weeks begin on Mondays."""
    if by == "hour":
        return moment.replace(minute=0, second=0, microsecond=0)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if by == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if by == "month" else day


def key_at(by: Span, moment: datetime) -> str:
    """The key of the window that a moment is in."""
    return beginning(by, moment).strftime(FORMATS[by])


def window_at(by: Span, key: str) -> TimeWindow:
    """The window of a key; a ValueError if no window begins there."""
    try:
        start = datetime.strptime(key, FORMATS[by]).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(
            f"'{key}' is no partition by {by}. Write it as {key_at(by, datetime(2026, 3, 2, tzinfo=UTC))}."
        ) from None
    if beginning(by, start) != start:
        raise ValueError(f"no partition by {by} begins at {key}; {key_at(by, start)} does.")
    end = Step.parse(f"1 {by}").after(start)
    assert isinstance(end, datetime), "a moment leads to a moment"
    return TimeWindow(start, end)


def _short(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M").removesuffix(" 00:00")
