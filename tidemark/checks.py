"""What a check says, whichever system it belongs to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class CheckResult:
    """The verdict of one check, with numbers that somebody can act on."""

    name: str
    passed: bool
    summary: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def failed(results: Iterable[CheckResult]) -> list[CheckResult]:
    return [result for result in results if not result.passed]
