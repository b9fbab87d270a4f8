"""The catalogue as a Dagster resource: the subject of a partition and the run that works on it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dagster import (
    AssetCheckExecutionContext,
    AssetExecutionContext,
    ConfigurableResource,
    InitResourceContext,
    ResourceDependency,
)

from resources.platform import PlatformResource
from spark_code.catalog.run import CatalogRun
from spark_code.catalog.subject import CatalogSubject

Context = AssetExecutionContext | AssetCheckExecutionContext

# Runs that are under way in this process, by Dagster's run id. A resource is made anew for every user of it, and the
# lease of a run must be held from its first step to its last.
_under_way: dict[str, CatalogRun] = {}


def step_of(run_id: str, name: str) -> AbstractContextManager[None]:
    """Times a step of a run that is under way here."""
    run = _under_way.get(run_id)
    return run.step(name) if run else nullcontext()


class CatalogResource(ConfigurableResource["CatalogResource"]):
    """Begins a run when its first step asks for it and ends it with the Dagster run, however that ends."""

    platform: ResourceDependency[PlatformResource]

    def subject(self, connection: str) -> CatalogSubject:
        platform = self.platform.platform
        return CatalogSubject(platform, platform.config.connection(connection))

    def run(self, context: Context) -> CatalogRun:
        found = _under_way.get(context.run.run_id)
        if found is None:
            found = CatalogRun(self.subject(context.partition_key), context.run.run_id)
            found.begin()
            _under_way[context.run.run_id] = found
        return found

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        under_way = _under_way.pop(context.run.run_id, None) if context.run else None
        if under_way is not None:
            under_way.end()


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
