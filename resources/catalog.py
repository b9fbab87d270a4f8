"""The catalogue as a Dagster resource: the subject of a partition and the run that works on it."""

from typing import Any

from dagster import (
    AssetCheckExecutionContext,
    AssetExecutionContext,
    ConfigurableResource,
    DagsterInstance,
    InitResourceContext,
    ResourceDependency,
)

from resources.platform import PlatformResource
from resources.runs import begun, closes_dead_runs, end_all
from spark_code.catalog.run import CatalogRun
from spark_code.catalog.subject import CatalogSubject

Context = AssetExecutionContext | AssetCheckExecutionContext


class CatalogResource(ConfigurableResource["CatalogResource"]):
    """Begins a run when its first step asks for it and ends it with the Dagster run, however that ends."""

    platform: ResourceDependency[PlatformResource]

    def subject(self, connection: str) -> CatalogSubject:
        platform = self.platform.platform
        return CatalogSubject(platform, platform.config.connection(connection))

    def run(self, context: Context) -> CatalogRun:
        return self.run_of(context.run.run_id, context.partition_key, context.instance)

    def run_of(self, dagster_run: str, connection: str, instance: DagsterInstance) -> CatalogRun:
        subject, on_dead = self.subject(connection), closes_dead_runs(instance, dagster_run)
        run = begun(
            instance,
            dagster_run,
            subject.address,
            lambda: CatalogRun(subject, dagster_run, dagster_run=dagster_run, on_dead=on_dead),
        )
        run.requested = requested(instance, dagster_run)
        return run

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        if context.run:
            end_all(context.run.run_id)


def requested(instance: DagsterInstance, dagster_run: str) -> dict[str, bool]:
    """What the run was requested to do, as `listing` gets it: a retry may begin behind it."""
    run = instance.get_run_by_id(dagster_run)
    config: dict[str, Any] = dict(run.run_config) if run else {}
    given = config.get("ops", {}).get("listing", {}).get("config", {})
    return {"force_full": given.get("full", False), "allow_removals": given.get("allow_removals", False)}


class MarkerResource(ConfigurableResource["MarkerResource"]):
    """marker.txt of a connection: what feeds the next incremental run."""

    catalog: ResourceDependency[CatalogResource]

    def shown(self, connection: str) -> dict[str, Any]:
        """The marker as found, and what is recorded for the published state."""
        subject = self.catalog.subject(connection)
        marker, published = subject.marker.read(), subject.published()
        return {
            "marker": marker.moment,
            "corrupt": marker.corrupt,
            "recorded for the published state": published.recorded_marker,
        }
