"""Connectors as a Dagster resource: the stream of a partition and the run that works on it."""

from contextlib import ExitStack

from dagster import (
    AssetCheckExecutionContext,
    AssetExecutionContext,
    ConfigurableResource,
    InitResourceContext,
    ResourceDependency,
)

from resources.platform import PlatformResource
from spark_code.connectors.run import IngestRun
from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.manifests import checked_tenant, find_manifest

Context = AssetExecutionContext | AssetCheckExecutionContext

# Runs that are under way in this process, by Dagster's run id and the stream.
_under_way: dict[tuple[str, str], IngestRun] = {}


class ConnectorsResource(ConfigurableResource["ConnectorsResource"]):
    """Begins the run of a stream when its first step asks for it and ends it with the Dagster run, however that ends."""

    platform: ResourceDependency[PlatformResource]

    def subject(self, tenant: str, connector: str, stream: str) -> StreamSubject:
        platform = self.platform.platform
        manifest = find_manifest(platform.config, connector)
        return StreamSubject(platform, checked_tenant(platform.config, tenant), manifest, manifest.stream(stream))

    def run(self, context: Context, connector: str, stream: str) -> IngestRun:
        subject = self.subject(context.partition_key, connector, stream)
        found = _under_way.get((context.run.run_id, subject.name))
        if found is None:
            found = IngestRun(subject, run_name(context.run.run_id, subject))
            found.begin()
            _under_way[context.run.run_id, subject.name] = found
        return found

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        ours = [key for key in _under_way if context.run and key[0] == context.run.run_id]
        with ExitStack() as ending:
            for key in ours:
                ending.callback(_under_way.pop(key).end)


def run_name(dagster_run: str, subject: StreamSubject) -> str:
    """A Dagster run may bring several streams up to date; each has a row of its own in the ledger."""
    return f"{dagster_run}.{subject.place.stream}"
