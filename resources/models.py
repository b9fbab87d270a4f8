"""Models as a Dagster resource: the project, and the engine that runs it."""

from collections.abc import Sequence

from dagster import AssetExecutionContext, ConfigurableResource, ResourceDependency

from resources.platform import PlatformResource
from resources.runs import closes_dead_runs, tag_subject
from spark_code.models.checks import run_checks
from spark_code.models.engine import ExecutionEngine
from spark_code.platform import Platform
from tidemark.checks import CheckResult
from tidemark.lake import CATALOG
from tidemark.models.graph import Project, load_project
from tidemark.models.lineage import Lineage
from tidemark.models.place import ModelPlace
from tidemark.models.results import ModelResult
from tidemark.models.windows import TimeWindow


class ModelsResource(ConfigurableResource["ModelsResource"]):
    """Runs models of the project as its files are now."""

    platform: ResourceDependency[PlatformResource]

    @property
    def opened(self) -> Platform:
        return self.platform.platform

    @property
    def project(self) -> Project:
        return load_project(self.opened.config)

    @property
    def engine(self) -> ExecutionEngine:
        return ExecutionEngine(self.opened, self.project)

    def run(self, context: AssetExecutionContext, name: str, *, full: bool, window: TimeWindow | None = None) -> ModelResult:
        """Brings one model up to date; its row in the ledger is called by both runs' names."""
        dagster_run = context.run.run_id
        on_dead = closes_dead_runs(context.instance, dagster_run)
        tag_subject(context.instance, dagster_run, ModelPlace(name).address)
        return self.engine.execute_model(
            name,
            full=full,
            window=window,
            run_id=run_name(dagster_run, name),
            dagster_run=dagster_run,
            on_dead=on_dead,
        )

    def check(self, name: str) -> Sequence[CheckResult]:
        """The checks of a model on what is published. They need no lease, but hold the place of its runs in the pool."""
        context = self.get_resource_context()
        if context.instance and context.run:
            tag_subject(context.instance, context.run.run_id, ModelPlace(name).address)
        model, spark = self.project.find(name), self.opened.spark
        return run_checks(name, spark.table(f"{CATALOG}.{name}"), None, model.metadata.checks)

    def lineage(self, project: Project, name: str) -> Lineage:
        """Where its columns come from, by the project's files and what the lake has."""
        return project.lineage(name, project.stored(self.opened.lake.reader, [f"+{name}"]))

    def columns(self, name: str) -> dict[str, str]:
        """The columns of its table or view, each with its type."""
        return dict(self.opened.spark.table(f"{CATALOG}.{name}").dtypes)

    def rows(self, name: str) -> int | None:
        """How many rows its table has; nobody counts those of a view."""
        reader = self.opened.lake.reader
        table = reader.table(name)
        published = table.current_snapshot() if table else None
        return None if table is None else reader.rows(name, published.snapshot_id if published else None)


def run_name(dagster_run: str, model: str) -> str:
    """A Dagster run may run several models; each has a row of its own in the ledger."""
    return f"{dagster_run}.{model}"
