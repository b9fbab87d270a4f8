"""Models as a whole: who reads whom, in which order they run, and where every column comes from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from tidemark.config import Config
from tidemark.config.problems import did_you_mean
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.manifests import load_manifests
from tidemark.errors import UnknownModel
from tidemark.models.files import read_models
from tidemark.models.lineage import STAR, Fields, Lineage
from tidemark.models.project import Model
from tidemark.models.references import Tables, resolved
from tidemark.models.tables import BronzeName, bronze_names, fields_of, known_now
from tidemark.models.tracing import lineage_of
from tidemark.parts import Broken, Parts, refuse_broken

if TYPE_CHECKING:
    from tidemark.lake import LakeReader


@dataclass(frozen=True)
class Project:
    """All models in dependency order, and those that cannot be used."""

    models: Mapping[str, Model] = field(default_factory=dict)
    bronze: Mapping[str, BronzeName] = field(default_factory=dict)
    broken: tuple[Broken, ...] = ()
    # What its models may read apart from each other.
    tables: Tables = field(default_factory=Tables)

    def find(self, name: str) -> Model:
        if name not in self.models:
            refuse_broken(self.broken, name)
            listed = ", ".join(sorted(self.models)) or "none; write `models: FOLDER` into the configuration"
            raise UnknownModel(f"no model '{name}'.{did_you_mean(name, self.models)} Models: {listed}.")
        return self.models[name]

    def selected(self, names: Sequence[str]) -> list[Model]:
        """The models that are meant, in the order they run: all without a name; `+a` with all that a reads, `a+` with
        all that read it, `silver.*` by a pattern."""
        if not names:
            return list(self.models.values())
        wanted: set[str] = set()
        for name in names:
            plain = name.removeprefix("+").removesuffix("+")
            fitting = [each for each in self.models if fnmatchcase(each, plain)] or [self.find(plain).name]
            wanted.update(fitting)
            for each in fitting:
                wanted |= self._reached(each, self.reads) if name.startswith("+") else set()
                wanted |= self._reached(each, self.read_by) if name.endswith("+") else set()
        return [model for name, model in self.models.items() if name in wanted]

    def broken_among(self, names: Sequence[str]) -> list[Broken]:
        """The broken models that a selection means as well: all without a name, or by a pattern."""
        patterns = [name.removeprefix("+").removesuffix("+") for name in names]
        return [
            each for each in self.broken if not names or any(fnmatchcase(each.name or "", pattern) for pattern in patterns)
        ]

    def reads(self, name: str) -> list[str]:
        """The models that a model reads itself."""
        return [each for each in self.models[name].references if each in self.models]

    def read_by(self, name: str) -> list[str]:
        """The models that read it themselves."""
        return [each for each in self.models if name in self.models[each].references]

    def streams(self, name: str) -> list[BronzeName]:
        """What it reads of Bronze."""
        return [self.bronze[each] for each in self.models[name].references if each in self.bronze]

    def lineage(self, name: str, known: Mapping[str, Fields] | None = None) -> Lineage:
        """Where its columns come from. What is `known` of tables adds to what the files say."""
        return self.lineages([f"+{self.find(name).name}"], known)[name]

    def lineages(self, names: Sequence[str] = (), known: Mapping[str, Fields] | None = None) -> dict[str, Lineage]:
        """The lineage of all that are selected, in dependency order."""
        columns = {each: bronze.columns for each, bronze in self.bronze.items()} | dict(known or {})
        found: dict[str, Lineage] = {}
        for model in self.selected(names):
            traced = lineage_of(model.sql, {each: columns.get(each, Fields()) for each in model.references})
            found[model.name] = traced
            if model.name not in columns and STAR not in traced.columns:
                columns[model.name] = Fields.named(*traced.columns)
        return found

    def stored(self, reader: "LakeReader", names: Sequence[str] = ()) -> dict[str, Fields]:
        """The columns that the tables which the selected models read have in the lake now."""
        found: dict[str, Fields] = {}
        for table in {each for model in self.selected(names) for each in model.references}:
            bronze = self.bronze.get(table)
            stored = reader.table(bronze.place.table if bronze else table)
            if stored is not None and not (bronze and table == bronze.place.quarantine):
                found[table] = known_now(bronze, stored) if bronze else fields_of(stored.schema())
        return found

    def _reached(self, name: str, step: Callable[[str], list[str]]) -> set[str]:
        found: set[str] = set()
        waiting = [name]
        while waiting:
            for each in step(waiting.pop()):
                if each not in found:
                    found.add(each)
                    waiting.append(each)
        return found


def load_project(config: Config, manifests: Parts[Manifest] | None = None) -> Project:
    """The project that the configuration names; an empty one if it names none. Models that are wrong are in `broken`.

    Whoever has loaded the manifests gives them.
    """
    if config.models is None:
        return Project()
    manifests = load_manifests(config) if manifests is None else manifests
    bronze = bronze_names(config, manifests)
    tables = Tables.of(config, config.models, manifests, bronze)
    models = Parts(resolved(read_models(config, config.models), tables))
    return Project(in_order(models), bronze, models.broken, tables)


def in_order(models: Mapping[str, Model]) -> dict[str, Model]:
    """The models in dependency order; the same every time."""
    sorter = TopologicalSorter({name: sorted(set(model.references) & set(models)) for name, model in models.items()})
    sorter.prepare()
    found: dict[str, Model] = {}
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found |= {name: models[name] for name in ready}
        sorter.done(*ready)
    return found
