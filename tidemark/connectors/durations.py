"""ISO 8601 durations of a fixed length, such as PT5M: what safety windows and hold-backs are written in."""

import re
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

SECOND = 10**9  # in nanoseconds
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
LONGEST = 36_525 * DAY  # a hundred years: whatever is longer was meant to be something else
UNITS = {"W": 7 * DAY, "D": DAY, "H": 60 * MINUTE, "M": MINUTE, "S": SECOND}
ALLOWED = "Allowed: weeks, days, hours, minutes and seconds, such as PT5M, P1D, PT0.5S or P1DT12H."

_NUMBER = r"([0-9]{1,12})(?:[.,]([0-9]{1,9}))?"
_FORM = re.compile(
    rf"P(?=[0-9T])(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?",
)
_CALENDAR = re.compile(r"P(?:[0-9.,]+[WD])*[0-9.,]+[YM]")


@total_ordering
@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time in whole nanoseconds; prints as it was written."""

    nanoseconds: int
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """The duration that the text means; a ValueError says what is wrong with it."""
        written = text.strip().upper()
        if _CALENDAR.match(written):
            raise ValueError(f"months and years have no fixed length. Write days or hours. {ALLOWED}")
        form = _FORM.fullmatch(written)
        if form is None:
            raise ValueError(f"is not an ISO 8601 duration. {ALLOWED}")
        given = [(unit, *form.group(2 * place + 1, 2 * place + 2)) for place, unit in enumerate(UNITS)]
        given = [part for part in given if part[1] is not None]
        if any(fraction for _, _, fraction in given[:-1]):
            raise ValueError(f"only the last number may have a fraction. {ALLOWED}")
        total = sum(_nanoseconds(unit, whole, fraction or "") for unit, whole, fraction in given)
        if total > LONGEST:
            raise ValueError("is longer than a hundred years.")
        return cls(total, written)

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return self.nanoseconds > 0

    def __lt__(self, other: "Duration") -> bool:
        return self.nanoseconds < other.nanoseconds

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """In a model, a duration is given as text (or as a Duration) and given back as text."""
        return core_schema.no_info_plain_validator_function(
            _from_setting, serialization=core_schema.to_string_ser_schema(when_used="always")
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": "^[Pp][0-9Tt]", "examples": ["PT5M", "P1D"]}


ZERO = Duration(0, "PT0S")


def _nanoseconds(unit: str, whole: str, fraction: str) -> int:
    # Up to nine digits of a unit of at least a second: always whole nanoseconds.
    return int(whole) * UNITS[unit] + int(fraction.ljust(9, "0")) * (UNITS[unit] // SECOND)


def _from_setting(value: Any) -> Duration:
    if isinstance(value, Duration):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be a duration. {ALLOWED}")
    return Duration.parse(value)
