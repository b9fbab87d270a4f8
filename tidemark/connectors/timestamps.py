"""Timestamps as exact instants: nanoseconds since 1970, and the form they were written in."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from tidemark.connectors.durations import DAY, MINUTE, SECOND

EPOCH_DAY = date(1970, 1, 1).toordinal()
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall clocks have no zone
# Of the year 1 and of the year 9999: what every database and every library can say.
EARLIEST = (date.min.toordinal() - EPOCH_DAY) * DAY
LATEST = (date.max.toordinal() - EPOCH_DAY + 1) * DAY - 1

_FORM = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:(?P<between>[Tt ])(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:(?P<point>[.,])(?P<fraction>[0-9]{1,9}))?)?"
    r"(?P<offset>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


class NotATimestamp(ValueError):
    """Why a text is no timestamp; never the text itself."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a timestamp is written: its separators, its offset or zone, and its smallest unit in nanoseconds."""

    unit: int
    between: str
    point: str
    offset: str | None
    zone: str | None

    def written(self, wall: int) -> str:
        """The wall-clock time (nanoseconds since 1970 on that clock) in this form, cut off below its unit."""
        days, rest = divmod(wall, DAY)
        text = date.fromordinal(EPOCH_DAY + days).isoformat()
        if self.unit == DAY:
            return text
        minutes, rest = divmod(rest, MINUTE)
        text += f"{self.between}{minutes // 60:02}:{minutes % 60:02}"
        if self.unit < MINUTE:
            text += f":{rest // SECOND:02}"
        if self.unit < SECOND:
            digits = 10 - len(str(self.unit))
            text += self.point + f"{rest % SECOND:09}"[:digits]
        return text + (self.offset or "")


@dataclass(frozen=True, slots=True)
class Timestamp:
    """An instant, and the text that it came as."""

    instant: int
    text: str
    form: Form

    def minus(self, nanoseconds: int) -> "Timestamp":
        """The instant that much earlier, rounded down to what the form can say: never too late."""
        exact = max(self.instant - nanoseconds, EARLIEST)
        wall = exact + _ahead(exact, self.form)
        text = self.form.written(max(wall, EARLIEST))
        # Read again, because a wall clock that is set back says some times twice: the earlier one is meant.
        return parsed(text, self.form.zone)


def parsed(text: str, zone: str | None = None) -> Timestamp:
    """The instant of ISO 8601 text; without an offset, the time of day is that of the zone."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise NotATimestamp("is not an ISO 8601 timestamp with at most nine digits of a second")
    day, between, hour, minute, second, point, fraction, offset = found.groups()
    try:
        days = date.fromisoformat(day).toordinal() - EPOCH_DAY
    except ValueError:
        raise NotATimestamp("is a date that does not exist") from None
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise NotATimestamp("is a time of day that does not exist")
    wall = days * DAY + (hours * 60 + minutes) * MINUTE + seconds * SECOND
    if fraction:
        wall += int(fraction) * 10 ** (9 - len(fraction))
    unit = DAY if hour is None else MINUTE if second is None else 10 ** (9 - len(fraction or ""))
    form = Form(unit, between or "", point or "", offset, None if offset else zone)
    instant = wall - (_offset(offset) if offset else _zone_ahead(wall, form))
    if not EARLIEST <= instant <= LATEST:
        raise NotATimestamp("is outside the years 1 to 9999")
    return Timestamp(instant, text, form)


@cache
def known_zone(name: str) -> ZoneInfo:
    """The zone of that name; NotATimestamp if there is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise NotATimestamp("has a zone that is not in the time zone database") from None


def text_of(moment: datetime | date) -> str:
    """The ISO 8601 text of a Python value; UTC is written as Z."""
    if not isinstance(moment, datetime):
        return moment.isoformat()
    text = moment.isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


@cache
def _offset(text: str) -> int:
    if text in "Zz":
        return 0
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise NotATimestamp("has an offset that does not exist")
    return (hours * 60 + minutes) * MINUTE * (-1 if text[0] == "-" else 1)


def _ahead(instant: int, form: Form) -> int:
    """How far the form's wall clock is ahead of UTC at the instant."""
    if form.offset:
        return _offset(form.offset)
    if form.zone is None:
        return 0
    try:
        return _nanoseconds(_utc(instant).astimezone(known_zone(form.zone)).utcoffset())
    except OverflowError:  # the first day there is, west of Greenwich
        return 0


def _zone_ahead(wall: int, form: Form) -> int:
    """How far the zone's clocks are ahead of UTC when they show this; the first time, if they show it twice."""
    if form.zone is None:
        if form.unit == DAY:
            return 0  # a day is a day: all of a stream's begin at the same hour, so their order is right
        raise NotATimestamp("has neither an offset nor a declared zone (`cursor_zone`)")
    zone = known_zone(form.zone)
    moment = EPOCH + timedelta(microseconds=wall // 1000)
    local = moment.replace(tzinfo=zone)
    try:
        there_and_back = local.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        raise NotATimestamp("is outside the years 1 to 9999") from None
    if there_and_back != moment and form.unit < DAY:
        # Clocks never showed it: read as an instant, it would be out of the order the source sorts by.
        raise NotATimestamp("is a time that the declared zone skips; the source's clock is in another zone")
    return _nanoseconds(local.utcoffset())


def _utc(instant: int) -> datetime:
    return (EPOCH + timedelta(microseconds=instant // 1000)).replace(tzinfo=UTC)


def _nanoseconds(span: timedelta | None) -> int:
    return (span or timedelta()) // timedelta(microseconds=1) * 1000
