"""What may be wrong with a configuration file, reported all at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from tidemark.errors import ConfigError
from tidemark.findings import Finding

Place = tuple[str | int, ...]  # the keys and list positions that lead to a value


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where it is, and what is allowed; never the value itself."""

    line: int
    place: Place
    words: str

    def finding(self, file: str) -> Finding:
        return Finding(file, self.line, self.words, shown(self.place))


def shown(place: Place) -> str:
    """`connections.shop.include[0]`"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def as_findings(file: str, problems: Iterable[Problem]) -> tuple[Finding, ...]:
    """All problems of the file, in its order."""
    return tuple(problem.finding(file) for problem in sorted(problems, key=lambda each: each.line))


def as_error(file: str, problems: Iterable[Problem]) -> ConfigError:
    """All problems of the file, in its order, a line each."""
    return ConfigError.of(as_findings(file, problems))


def refusal(file: str, words: str, line: int = 1) -> ConfigError:
    """What is wrong with a file as a whole, or with one line of it."""
    return ConfigError.of([Finding(file, line, words)])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean '…'?`, or nothing if no known word is near."""
    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
