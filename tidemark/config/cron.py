"""Cron expressions, as far as everybody reads them alike: five fields, or @hourly and the like."""

import re

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

_ITEM = re.compile(r"(?:(?P<all>\*)|(?P<first>[0-9a-z]+)(?:-(?P<last>[0-9a-z]+))?)(?:/(?P<step>[0-9]{1,3}))?")


def checked_cron(text: str) -> str:
    """The expression itself; a ValueError tells what is wrong with it."""
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
