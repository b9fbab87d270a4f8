"""All models of a project, in the order of what they read."""

from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import uuid4

from spark_code.models.materialize import MaterializationHandler
from spark_code.models.plan import planned
from spark_code.platform import Platform
from tidemark.config.problems import did_you_mean
from tidemark.errors import ConfigError, TidemarkError, UnknownModel
from tidemark.models.results import ModelPlan, ModelResult
from tidemark.models.spec import ModelMetadata


class ModelLike(Protocol):
    """What the engine needs of a model of the project."""

    @property
    def name(self) -> str: ...
    @property
    def sql(self) -> str: ...
    @property
    def metadata(self) -> ModelMetadata: ...
    @property
    def references(self) -> Sequence[object]: ...


class ExecutionEngine:
    """Runs and plans the models of a project."""

    def __init__(self, platform: Platform, models: Iterable[ModelLike]) -> None:
        self.platform = platform
        self.models = {model.name: model for model in models}

    def execute_models(self, names: Sequence[str] | None = None, full: bool = False) -> list[ModelResult]:
        """Runs these models, or all, those that others read first. What reads a model that failed is skipped."""
        return ModelExecutor(self.platform, self.models).execute(self.chosen(names), full=full)

    def execute_model(self, name: str, *, full: bool = False, run_id: str | None = None) -> ModelResult:
        """Runs one model, whatever it reads; its errors come as they are."""
        (model,) = self.chosen([name])
        return ModelExecutor(self.platform, self.models).run(model, full=full, run_id=run_id or str(uuid4()))

    def plan_models(self, names: Sequence[str] | None = None, full: bool = False) -> list[ModelPlan]:
        """What a run would do now. Nothing is written."""
        handler = MaterializationHandler(self.platform)
        return [planned(handler, model.name, model.sql, model.metadata, full=full) for model in self.chosen(names)]

    def chosen(self, names: Sequence[str] | None) -> list[ModelLike]:
        """The models of these names in the order they run in."""
        for name in names or ():
            if name not in self.models:
                known = ", ".join(self.models) or "none"
                raise UnknownModel(f"no model '{name}'.{did_you_mean(name, self.models)} Models: {known}.")
        wanted = set(names) if names else set(self.models)
        return [model for model in ordered(self.models.values()) if model.name in wanted]


class ModelExecutor:
    """Runs one model after the other."""

    def __init__(self, platform: Platform, models: dict[str, ModelLike]) -> None:
        self.handler = MaterializationHandler(platform)
        self.models = models

    def execute(self, models: Sequence[ModelLike], *, full: bool = False) -> list[ModelResult]:
        done: dict[str, ModelResult] = {}
        for model in models:
            broken = [
                name for name in reads(model, self.models) if name in done and done[name].status in ("failed", "skipped")
            ]
            done[model.name] = self._skipped(model, broken) if broken else self._ran(model, full=full)
        return list(done.values())

    def _ran(self, model: ModelLike, *, full: bool) -> ModelResult:
        run_id = str(uuid4())
        try:
            return self.run(model, full=full, run_id=run_id)
        except TidemarkError as error:
            return ModelResult(model.name, "failed", "unchanged", type(error).__name__, run_id, error=str(error))

    def run(self, model: ModelLike, *, full: bool, run_id: str) -> ModelResult:
        said = model.metadata
        return self.handler.materialize(model.name, model.sql, said.materialization, said, full=full, run_id=run_id)

    def _skipped(self, model: ModelLike, broken: Sequence[str]) -> ModelResult:
        reason = f"it reads {', '.join(broken)}, which did not run"
        return ModelResult(model.name, "skipped", "unchanged", reason, "", error=f"{model.name}: {reason}.")


def reads(model: ModelLike, models: dict[str, ModelLike]) -> list[str]:
    """The models that a model reads."""
    named = [str(getattr(each, "name", each)).lower() for each in model.references]
    known = {name.lower(): name for name in models}
    return [known[name] for name in named if name in known]


def ordered(models: Iterable[ModelLike]) -> list[ModelLike]:
    """Those that others read first; a circle is an error that names it."""
    known = {model.name: model for model in models}
    done: dict[str, ModelLike] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ConfigError(f"models read each other in a circle: {' → '.join([*above[above.index(name) :], name])}.")
        if name not in done:
            for other in reads(known[name], known):
                visit(other, (*above, name))
            done[name] = known[name]

    for name in known:
        visit(name, ())
    return list(done.values())
