"""Cron expressions, as far as everybody reads them alike: five fields, or @hourly and the like."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

SHORT_FORMS = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

ALLOWED = (
    "Allowed: five fields (minute, hour, day of month, month, day of week) of numbers, *, ranges 1-5, lists 1,3 and "
    f'steps */15, such as "0 * * * *"; or {", ".join(SHORT_FORMS)}.'
)

# name, least, greatest, words that stand for numbers
FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {word: number for number, word in enumerate(MONTHS, 1)}),
    ("day of week", 0, 7, {word: number for number, word in enumerate(DAYS)}),
)

# What the short forms stand for.
LONG_FORMS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# 29 February may be eight years away, as in 1896 and 2096.
FARTHEST = timedelta(days=8 * 366)
DAY = timedelta(days=1)

_ITEM = re.compile(r"(?:(?P<all>\*)|(?P<first>[0-9a-z]+)(?:-(?P<last>[0-9a-z]+))?)(?:/(?P<step>[0-9]{1,3}))?")


def checked_cron(text: str) -> str:
    """The expression itself; a ValueError says what is wrong with it."""
    expression = text.strip().lower()
    if expression in SHORT_FORMS:
        return expression
    parts = expression.split()
    if len(parts) != len(FIELDS):
        raise ValueError(f"a schedule has five fields, this one has {len(parts)}. {ALLOWED}")
    minute_hour_day_month_weekday = [
        _numbers(part, name, least, greatest, words)
        for part, (name, least, greatest, words) in zip(parts, FIELDS, strict=True)
    ]
    _, _, days, months, _ = minute_hour_day_month_weekday
    if min(days) > max(LENGTHS[month - 1] for month in months):
        raise ValueError(f"no such day of month ever comes in these months. {ALLOWED}")
    return " ".join(parts)


def _numbers(part: str, name: str, least: int, greatest: int, words: dict[str, int]) -> set[int]:
    numbers: set[int] = set()
    for item in part.split(","):
        form = _ITEM.fullmatch(item)
        step = int(form["step"] or 1) if form else 0
        if form is None or step == 0:
            raise ValueError(f"the field '{name}' cannot be read. {ALLOWED}")
        first = least if form["all"] else _number(form["first"], words)
        last = _number(form["last"], words) if form["last"] else first
        if form["all"] or (form["step"] and not form["last"]):
            last = greatest
        if first is None or last is None or not least <= first <= last <= greatest:
            raise ValueError(f"the field '{name}' goes from {least} to {greatest}, a range from low to high. {ALLOWED}")
        numbers.update(range(first, last + 1, step))
    return numbers


def _number(text: str, words: dict[str, int]) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else words.get(text)


# --- ticks ---------------------------------------------------------------------------------------------------------------


def last_tick(expression: str, now: datetime) -> datetime:
    """The newest moment, in UTC and not after now, at which the expression fires."""
    schedule, now = _Schedule.of(expression), now.astimezone(UTC)
    for day in _days(now.date(), -DAY):
        for moment in reversed(schedule.on(day)):
            if moment <= now:
                return moment
    raise ValueError(f"no such day of month ever comes in these months. {ALLOWED}")


def next_tick(expression: str, now: datetime) -> datetime:
    """The first moment after now, in UTC, at which the expression fires."""
    schedule, now = _Schedule.of(expression), now.astimezone(UTC)
    for day in _days(now.date(), DAY):
        for moment in schedule.on(day):
            if moment > now:
                return moment
    raise ValueError(f"no such day of month ever comes in these months. {ALLOWED}")


@dataclass(frozen=True)
class _Schedule:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    # Cron's oldest rule: if day of month and day of week are both restricted, either will do.
    either: bool

    @classmethod
    def of(cls, expression: str) -> "_Schedule":
        checked = checked_cron(expression)
        parts = LONG_FORMS.get(checked, checked).split()
        found = [_numbers(part, *field) for part, field in zip(parts, FIELDS, strict=True)]
        found[-1] = {number % 7 for number in found[-1]}  # 0 and 7 are both Sunday
        day, weekday = parts[2], parts[4]
        # As Dagster reads it: a list of all days is a restriction too, unless the other field has a star.
        all_days = day == "*" or (len(found[2]) == max(LENGTHS) and "*" in weekday)
        all_weekdays = weekday == "*" or (len(found[4]) == len(DAYS) and "*" in day)
        minutes, hours, days, months, weekdays = map(frozenset, found)
        return cls(minutes, hours, days, months, weekdays, either=not all_days and not all_weekdays)

    def on(self, day: date) -> list[datetime]:
        """Every moment of a day at which it fires."""
        if not self._fires_on(day):
            return []
        hours, minutes = sorted(self.hours), sorted(self.minutes)
        return [datetime.combine(day, time(hour, minute), UTC) for hour in hours for minute in minutes]

    def _fires_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either else of_month and of_week


def _days(first: date, step: timedelta) -> Iterator[date]:
    return (first + number * step for number in range(FARTHEST // DAY))
