"""The chunks of a refresh: half-open ranges of a column, the last one closed."""

from dataclasses import dataclass
from itertools import product
from typing import Any

from tidemark.errors import ConfigError
from tidemark.models.spec import Parameter
from tidemark.models.steps import Point
from tidemark.models.values import Value, from_text, to_text

MOST = 100_000  # chunks of one refresh: more are a step that is far too small


@dataclass(frozen=True)
class Range:
    """From `start` on, up to `end`: without it, or with it in the last range."""

    name: str
    column: str
    start: Value
    end: Value
    closed: bool

    def to_json(self) -> dict[str, Any]:
        ends = {"start": to_text(self.start), "end": to_text(self.end)}
        return {"name": self.name, "column": self.column, **ends, "closed": self.closed}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> "Range":
        ends = {name: from_text(kept[name]) for name in ("start", "end")}
        return cls(**{**kept, **ends})


@dataclass(frozen=True)
class Chunk:
    """One range of every parameter."""

    number: int
    ranges: tuple[Range, ...]

    def told(self) -> str:
        return ", ".join(f"{each.column} {each.start} … {each.end}" for each in self.ranges)


def ranges_of(parameter: Parameter, start: Point, end: Point) -> list[Range]:
    """The ranges of one parameter: they touch, none is empty, and the last one ends at `end`, itself included."""
    try:
        after_start, backwards = parameter.step.after(start), start > end  # type: ignore[operator]
    except (ValueError, TypeError) as error:
        raise ConfigError(f"full_incremental_refresh, parameter @{parameter.name}: {error}") from None
    if backwards:
        raise ConfigError(f"full_incremental_refresh, parameter @{parameter.name}: start_value is beyond end_value.")
    if isinstance(start, int) and not isinstance(after_start, int):
        wrong = f"the step is {parameter.step}, and the column's values are whole numbers."
        raise ConfigError(f"full_incremental_refresh, parameter @{parameter.name}: {wrong}")
    if after_start <= start:  # type: ignore[operator]
        raise ConfigError(f"full_incremental_refresh, parameter @{parameter.name}: the step leads nowhere.")
    found: list[Range] = []
    lower, count = start, 0
    while True:
        count += 1
        if count > MOST:
            raise ConfigError(
                f"full_incremental_refresh, parameter @{parameter.name}: more than {MOST:,} chunks. Use a longer step."
            )
        upper = parameter.step.after(start, count)
        if upper > end:  # type: ignore[operator]
            found.append(Range(parameter.name, parameter.column, lower, end, closed=True))
            return found
        found.append(Range(parameter.name, parameter.column, lower, upper, closed=False))
        lower = upper


def chunks_of(ranges: list[list[Range]]) -> list[Chunk]:
    """Every combination of ranges, numbered."""
    return [Chunk(number, combination) for number, combination in enumerate(product(*ranges))]
