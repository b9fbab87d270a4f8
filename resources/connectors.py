"""Streams as a Dagster resource: the stream of a partition and the run that works on it."""

from dagster import (
    AssetCheckExecutionContext,
    AssetExecutionContext,
    ConfigurableResource,
    InitResourceContext,
    ResourceDependency,
)

from resources.platform import PlatformResource
from resources.runs import begun, closes_dead_runs, end_all
from spark_code.connectors.run import IngestRun
from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.manifests import checked_tenant, find_manifest

Context = AssetExecutionContext | AssetCheckExecutionContext


class ConnectorsResource(ConfigurableResource["ConnectorsResource"]):
    """Begins the run of a stream when its first step asks for it and ends it with the Dagster run, however that ends."""

    platform: ResourceDependency[PlatformResource]

    def subject(self, tenant: str, connector: str, stream: str) -> StreamSubject:
        platform = self.platform.platform
        manifest = find_manifest(platform.config, connector)
        return StreamSubject(platform, checked_tenant(platform.config, tenant), manifest, manifest.stream(stream))

    def run(self, context: Context, connector: str, stream: str, **requested: bool) -> IngestRun:
        """The run of a stream. `requested` is what was asked of the whole run, whichever step comes first."""
        dagster_run, subject = context.run.run_id, self.subject(context.partition_key, connector, stream)
        on_dead = closes_dead_runs(context.instance, dagster_run)
        return begun(
            context.instance,
            dagster_run,
            subject.address,
            lambda: IngestRun(subject, run_name(dagster_run, stream), dagster_run=dagster_run, on_dead=on_dead, **requested),
        )

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        if context.run:
            end_all(context.run.run_id)


def run_name(dagster_run: str, stream: str) -> str:
    """A Dagster run may bring several streams up to date; each has a row of its own in the ledger."""
    return f"{dagster_run}.{stream}"
