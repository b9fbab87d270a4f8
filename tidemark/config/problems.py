"""What may be wrong with a configuration file, told all at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from tidemark.errors import ConfigError

Place = tuple[str | int, ...]  # the keys and list positions that lead to a value


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where it is, and what is allowed; never the value itself."""

    line: int
    place: Place
    words: str

    def told(self, file: str) -> str:
        where = f" {shown(self.place)}:" if self.place else ""
        return f"{file}:{self.line}:{where} {self.words}"


def shown(place: Place) -> str:
    """`connections.shop.include[0]`"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def as_error(file: str, problems: Iterable[Problem]) -> ConfigError:
    """All problems of the file, in its order, a line each."""
    return ConfigError("\n".join(problem.told(file) for problem in sorted(problems, key=lambda each: each.line)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean '…'?`, or nothing if no known word is near."""
    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
