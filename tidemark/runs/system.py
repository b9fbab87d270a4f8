"""A system: a kind of subject that runs bring up to date. What all systems share needs to know no more of it than this.

Systems plug in by entry points (`tidemark.systems`), as their commands do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from tidemark.config.problems import did_you_mean
from tidemark.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from tidemark.checks import CheckResult
    from tidemark.config import Config
    from tidemark.control import RunRecord
    from tidemark.findings import Finding
    from tidemark.parts import Broken
    from tidemark.runs.upkeep import Compactor, UpkeepSubject


@dataclass(frozen=True)
class Configured:
    """A subject that the configuration names. Without a schedule nobody says when it is due."""

    address: str
    schedule: str | None
    # When its upkeep is due; None: it needs none.
    upkeep: str | None = None
    # The file that names it: it is configured at least since that was last written.
    file: str | None = None
    # Why it cannot be used. What a broken file names is not known: its address may then be the beginning of several.
    broken: tuple[Finding, ...] = ()
    # Its file cannot even be read as far as its name, so any subject of the system may be its own.
    guessed: bool = False

    @classmethod
    def unusable(cls, address: str, part: Broken) -> Configured:
        return cls(address, None, None, part.findings[0].file, part.findings, part.guessed)

    def covers(self, address: str) -> bool:
        """Whether an address is its own, or below it."""
        return address == self.address or address.startswith(f"{self.address}/")


def _lake_of(subject: Any) -> Compactor:
    lake: Compactor = subject.platform.lake
    return lake


def _no_audit(_: UpkeepSubject) -> list[CheckResult]:
    return []


@dataclass(frozen=True)
class System:
    """What commands, sensors, upkeep and failure notices need to know of a system."""

    # The word behind `tidemark`, and the first part of its addresses.
    noun: str
    # What it is, in a sentence.
    summary: str
    # How a subject is named behind the noun.
    form: str
    configured: Callable[[Config], Sequence[Configured]]
    # Its place among the systems where they are listed: data flows downwards.
    place: int = field(default=9, kw_only=True)
    # The subject of a name, opened on a platform. An unknown name is an error that lists those there are.
    open: Callable[[Any, str], UpkeepSubject]
    # The steps of a run: (subject, run id, full=…, and what `Run` takes). For systems whose runs are one step in Dagster and
    # have no options but to read everything; they get `run` at the shell and a job in Dagster for it.
    run: Callable[..., RunRecord] | None = None
    # The addresses that names stand for; None: a name is a subject, or the beginning of several up to a slash.
    select: Callable[[Config, Sequence[str]], Sequence[str]] | None = None
    # Addresses that runs may be of although nothing is to be kept up there, such as views.
    more: Callable[[Config], Iterable[str]] = lambda _: ()
    # Compares all that is published with what it was made from.
    audit: Callable[[Any], list[CheckResult]] = _no_audit
    compactor: Callable[[UpkeepSubject], Compactor] = _lake_of

    def address(self, name: str) -> str:
        return f"{self.noun}/{name}"

    def name(self, address: str) -> str:
        """The name behind the noun."""
        return address.removeprefix(f"{self.noun}/")

    def chosen(self, config: Config, names: Sequence[str]) -> list[str]:
        """The addresses that are meant, each once; all of them without a name."""
        subjects = self.configured(config)
        known = [each.address for each in subjects if not each.broken]
        if not names:
            return known
        if self.select is not None:
            return list(dict.fromkeys(self.select(config, names)))
        found: list[str] = []
        for name in names:
            wanted = self.address(name)
            those = [each for each in known if each == wanted or each.startswith(f"{wanted}/")]
            if not those:
                refuse_broken(subjects, wanted)
                listed = [self.name(each) for each in known]
                words = f"{did_you_mean(name, listed)} Known: {', '.join(listed) or 'none'}."
                raise UsageError(f"no {self.noun} '{name}' in {config.path}.{words}")
            found += those
        return list(dict.fromkeys(found))

    def listed(self, config: Config, names: Sequence[str]) -> list[Configured]:
        """The subjects that are meant, with those that are broken; all of them without a name."""
        subjects = self.configured(config)
        if not names:
            return list(subjects)
        wanted = {name: self.address(name) for name in names}
        broken = {
            each: name
            for each in subjects
            for name, address in wanted.items()
            if each.broken and (each.covers(address) or each.address.startswith(f"{address}/"))
        }
        others = [name for name in names if name not in broken.values()]
        chosen = self.chosen(config, others) if others else []
        return [each for each in subjects if each in broken or each.address in chosen]


_registered: dict[str, System] = {}


@cache
def installed_systems() -> Mapping[str, System]:
    """Those of installed packages, by noun."""
    found: list[System] = [each.load() for each in entry_points(group="tidemark.systems")]
    return {each.noun: each for each in sorted(found, key=lambda each: each.place)}


def register_system(system: System) -> System:
    """Adds one that no package declares: from now on its subjects are in `status`, upkeep and failure notices too."""
    _registered[system.noun] = system
    return system


def systems() -> dict[str, System]:
    """By noun."""
    return {**installed_systems(), **_registered}


def system_of(address: str) -> System:
    """The system that an address belongs to."""
    known, noun = systems(), address.partition("/")[0]
    if noun not in known:
        raise UsageError(f"{address[:300]!r} is no address: no system has that name. Systems: {', '.join(known)}.")
    return known[noun]


def open_subject(platform: Any, address: str) -> UpkeepSubject:
    """The subject of an address; an unknown name is an error of its system that lists those there are."""
    system = system_of(address)
    return system.open(platform, system.name(address))


def configured_subjects(config: Config) -> list[Configured]:
    """What the configuration asks to be kept up to date, in the order of the systems, broken subjects included."""
    return [each for system in systems().values() for each in system.configured(config)]


def refuse_broken(subjects: Iterable[Configured], address: str) -> None:
    """Raises the error of the broken subject that an address belongs to, if there is one."""
    for each in subjects:
        if each.broken and each.covers(address):
            raise ConfigError.of(each.broken)


class KnownSubjects:
    """Every address that a run may be of. What a broken file names is not known: all below its address may be of it."""

    def __init__(self, subjects: Iterable[Configured], more: Iterable[str] = ()) -> None:
        subjects = list(subjects)
        self._usable = {each.address for each in subjects if not each.broken}.union(more)
        self._broken = [each for each in subjects if each.broken]
        self._unsure = {each.address.partition("/")[0] for each in self._broken if each.guessed}

    def __contains__(self, address: object) -> bool:
        """Whether it is configured, or may be: a file that cannot be read may name it."""
        return self.surely(str(address)) or str(address).partition("/")[0] in self._unsure

    def surely(self, address: str) -> bool:
        return address in self._usable or any(each.covers(address) for each in self._broken)


def known_subjects(config: Config) -> KnownSubjects:
    more = (address for system in systems().values() for address in system.more(config))
    return KnownSubjects(configured_subjects(config), more)
