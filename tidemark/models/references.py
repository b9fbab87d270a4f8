"""What models read, checked over all of them: tables that do not exist, circles, and what reads a broken one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter

from tidemark.config import Config, ModelsSettings
from tidemark.config.problems import did_you_mean
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.place import plain
from tidemark.findings import Finding
from tidemark.models.project import Model
from tidemark.parts import Claim, Parts

Claims = list[Claim[Model]]


@dataclass(frozen=True)
class Tables:
    """What models may read apart from each other."""

    bronze: frozenset[str] = frozenset()
    external: tuple[str, ...] = ()
    # How the tables of broken connectors begin → the connector's address.
    broken: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, config: Config, settings: ModelsSettings, manifests: Parts[Manifest], bronze: Iterable[str]) -> "Tables":
        broken = {
            f"bronze.{plain(tenant)}.{plain(each.name)}.": f"stream/{tenant}/{each.name}"
            for tenant in config.tenants
            for each in manifests.broken
            if each.name
        }
        return cls(frozenset(bronze), settings.external, broken)

    def has(self, name: str) -> bool:
        return name in self.bronze or any(fnmatchcase(name, pattern) for pattern in self.external)

    def broken_connector(self, name: str) -> str | None:
        return next((address for beginning, address in self.broken.items() if name.startswith(beginning)), None)


def resolved(claims: Claims, tables: Tables) -> Claims:
    """The claims, with what is wrong between them."""
    named = {each.name for each in claims if each.name}
    claims = [_with_known_tables(each, named, tables) for each in claims]
    return _without_readers_of_broken(_without_circles(claims), tables)


def unknown_table(name: str, models: set[str], tables: Tables) -> str | None:
    """What is wrong with the name of a table that a model reads; None if it exists, or should."""
    if name in models or tables.has(name) or tables.broken_connector(name):
        return None
    near = did_you_mean(name, {*models, *tables.bronze})
    return f"there is no table {name}.{near} Models read models, Bronze, and what `models: external:` names."


def _with_known_tables(claim: Claim[Model], models: set[str], tables: Tables) -> Claim[Model]:
    if claim.part is None:
        return claim
    wrong = [(each.line, unknown_table(each.name, models, tables)) for each in claim.part.found]
    return claim.found(*(Finding(str(claim.part.path), line, words) for line, words in wrong if words))


# --- circles ---------------------------------------------------------------------------------------------------------


def _without_circles(claims: Claims) -> Claims:
    """The claims; each model of a circle says how it gets back to itself."""
    models = {each.name: each.part for each in claims if each.name and each.part}
    circles: dict[str, list[str]] = {}
    while circle := _circle({name: model for name, model in models.items() if name not in circles}):
        circles |= {name: [*circle[place:], *circle[: place + 1]] for place, name in enumerate(circle)}
    return [
        each.found(_in_circle(each.part, circles[each.name])) if each.part and each.name in circles else each
        for each in claims
    ]


def _circle(models: Mapping[str, Model]) -> list[str]:
    """Models that read each other in a circle, each followed by one that it reads; none if there is no circle."""
    sorter = TopologicalSorter({name: sorted(set(model.references) & set(models)) for name, model in models.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))[:-1]
    return []


def _in_circle(model: Model, circle: Sequence[str]) -> Finding:
    line = next(each.line for each in model.found if each.name == circle[1])
    return Finding(str(model.path), line, f"models read each other in a circle: {' reads '.join(circle)}.")


# --- what reads a broken one -----------------------------------------------------------------------------------------


def _without_readers_of_broken(claims: Claims, tables: Tables) -> Claims:
    """The claims; a model cannot do without a broken one that it reads, and neither can those that read it."""
    usable = {each.name for each in claims if not each.findings}
    while True:
        broken = {each.name for each in claims if each.findings} - usable
        claims = [each if each.findings else _reading(each, broken, tables) for each in claims]
        left = {each.name for each in claims if not each.findings}
        if left == usable:
            return claims
        usable = left


def _reading(claim: Claim[Model], broken: set[str | None], tables: Tables) -> Claim[Model]:
    findings = []
    for each in claim.part.found if claim.part else ():
        cause = f"model/{each.name}" if each.name in broken else None
        cause = cause or (None if tables.has(each.name) else tables.broken_connector(each.name))
        if cause:
            words = f"it reads {each.name}, and {cause} is broken. It is used again when that is fixed."
            findings.append(replace(Finding(claim.file, each.line, words), caused_by=cause))
    return claim.found(*findings)
