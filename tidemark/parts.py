"""The parts of a project: connections, connectors and models. A part that is wrong takes out itself and no other.

Whoever reads files makes a `Claim` of each, whether it can be used or not; nothing is raised. The usable ones go on, and the
others are kept with what is wrong: whoever asks for one of those by its name gets its error.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tidemark.errors import ConfigError
from tidemark.findings import Finding

T = TypeVar("T")


@dataclass(frozen=True)
class Claim(Generic[T]):
    """What one file brings: a part under a name, and all that is wrong with it."""

    file: str
    # None: nobody knows what the file would have been.
    name: str | None
    # A part may be known in outline although it is broken, so that more can be said about it.
    part: T | None = None
    findings: tuple[Finding, ...] = ()
    # Where the name is written.
    line: int = 1
    # The file cannot be read as far as its name: it takes the name away from nobody.
    guessed: bool = False

    def found(self, *findings: Finding) -> "Claim[T]":
        return replace(self, findings=(*self.findings, *findings))


@dataclass(frozen=True)
class Broken:
    """A part that cannot be used, and why."""

    name: str | None
    findings: tuple[Finding, ...]
    # What it is called, and what it would bring, is not known for sure.
    guessed: bool = False

    def error(self) -> ConfigError:
        return ConfigError.of(self.findings)


class Parts(dict[str, T]):
    """The parts that can be used, by name, and those that cannot."""

    def __init__(self, claims: Iterable[Claim[T]] = ()) -> None:
        claims = list(claims)
        super().__init__({each.name: each.part for each in claims if each.name and each.part and not each.findings})
        self.broken = broken_of(claims)


def broken_of(claims: Iterable[Claim[T]]) -> tuple[Broken, ...]:
    return tuple(Broken(each.name, each.findings, each.guessed) for each in claims if each.findings)


def refuse_broken(broken: Iterable[Broken], name: str) -> None:
    """Raises the error of the broken part that has the name, if there is one."""
    for each in broken:
        if each.name == name:
            raise each.error()


def without_shared_names(claims: Sequence[Claim[T]], same: Callable[[str], str] = str, aside: str = "") -> list[Claim[T]]:
    """The claims; where two are of the same name, nobody can say which one is meant, and neither is used."""
    named = defaultdict(list)
    for claim in claims:
        if claim.name and not claim.guessed:
            named[same(claim.name)].append(claim)
    return [_alone(claim, named[same(claim.name)], aside) if claim.name else claim for claim in claims]


def _alone(claim: Claim[T], claimants: Sequence[Claim[T]], aside: str) -> Claim[T]:
    others = [each.file for each in claimants if each is not claim]
    if claim.guessed or not others:
        return claim
    words = f"{', '.join(others)} has the name '{claim.name}' too{aside}. Rename one: until then neither is used."
    return claim.found(Finding(claim.file, claim.line, words))
