"""All models of a project, in the order of what they read."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from spark_code.models.materialize import MaterializationHandler
from spark_code.models.plan import planned
from spark_code.platform import Platform
from tidemark.errors import TidemarkError
from tidemark.models.graph import Project
from tidemark.models.project import Model
from tidemark.models.results import ModelPlan, ModelResult
from tidemark.models.windows import TimeWindow


class ExecutionEngine:
    """Runs and plans the models of a project."""

    def __init__(self, platform: Platform, project: Project) -> None:
        self.platform = platform
        self.project = project

    def execute_models(self, names: Sequence[str] = (), full: bool = False) -> list[ModelResult]:
        """Runs these models, or all, those that others read first. What reads a model that failed is skipped."""
        return ModelExecutor(self.platform, self.project).execute(self.project.selected(names), full=full)

    def execute_model(
        self,
        name: str,
        *,
        full: bool = False,
        window: TimeWindow | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> ModelResult:
        """Runs one model, whatever it reads; its errors come as they are."""
        executor = ModelExecutor(self.platform, self.project)
        return executor.run(self.project.find(name), full=full, window=window, run_id=run_id or str(uuid4()), **options)

    def plan_models(
        self, names: Sequence[str] = (), full: bool = False, window: TimeWindow | None = None
    ) -> list[ModelPlan]:
        """What a run would do now, of everything new or of a window. Nothing is written."""
        handler = MaterializationHandler(self.platform)
        chosen = self.project.selected(names)
        return [planned(handler, model.name, model.sql, model.metadata, full=full, window=window) for model in chosen]


class ModelExecutor:
    """Runs one model after the other."""

    def __init__(self, platform: Platform, project: Project) -> None:
        self.handler = MaterializationHandler(platform)
        self.project = project

    def execute(self, models: Sequence[Model], *, full: bool = False) -> list[ModelResult]:
        done: dict[str, ModelResult] = {}
        for model in models:
            read = [done[name] for name in self.project.reads(model.name) if name in done]
            broken = [each.name for each in read if each.status in ("failed", "skipped")]
            done[model.name] = self._skipped(model, broken) if broken else self._ran(model, full=full)
        return list(done.values())

    def _ran(self, model: Model, *, full: bool) -> ModelResult:
        run_id = str(uuid4())
        try:
            return self.run(model, full=full, run_id=run_id)
        except TidemarkError as error:
            return ModelResult(model.name, "failed", "unchanged", type(error).__name__, run_id, error=str(error))

    def run(self, model: Model, *, full: bool, window: TimeWindow | None = None, run_id: str, **options: Any) -> ModelResult:
        said = model.metadata
        return self.handler.materialize(
            model.name, model.sql, said.materialization, said, full=full, window=window, run_id=run_id, **options
        )

    def _skipped(self, model: Model, broken: Sequence[str]) -> ModelResult:
        reason = f"it reads {', '.join(broken)}, which did not run"
        return ModelResult(model.name, "skipped", "unchanged", reason, "", error=f"{model.name}: {reason}.")
