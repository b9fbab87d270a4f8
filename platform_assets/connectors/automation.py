"""When streams run by themselves: at their time, or when files or messages arrive. And their upkeep."""

from collections.abc import Iterator

from dagster import (
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    RunRequest,
    ScheduleDefinition,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    job,
    op,
    schedule,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from partitions.connectors import tenants
from platform_assets.catalog.automation import AGAIN
from platform_assets.connectors.assets import bronze_key, group, landed_key
from resources.connectors import ConnectorsResource
from spark_code.connectors.maintenance import maintain
from spark_code.connectors.subject import StreamSubject
from tidemark.config import Config
from tidemark.connectors.contract import CheckpointConnector
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.place import SYSTEM
from tidemark.errors import TidemarkError

Job = JobDefinition | UnresolvedAssetJobDefinition


def at_their_time(config: Config, what: Job, name: str, cron: str, told: str) -> ScheduleDefinition:
    """A schedule that starts one run for every tenant."""

    @schedule(job=what, cron_schedule=cron, execution_timezone="UTC", name=name, description=told)
    def scheduled() -> list[RunRequest]:
        started_by = {"tidemark/started-by": "schedule"} | AGAIN
        return [RunRequest(partition_key=tenant, tags=started_by) for tenant in config.tenants]

    return scheduled


def on_arrival(config: Config, manifest: Manifest, ingest: Job) -> SensorDefinition:
    """A sensor for sources that can tell what waits to be read: files and logs."""

    @sensor(
        job=ingest,
        name=f"{group(manifest.connector)}_arrivals",
        minimum_interval_seconds=60,
        description=f"Starts a run when something waits to be read at {manifest.connector}.",
    )
    def arrivals(context: SensorEvaluationContext, connectors: ConnectorsResource) -> Iterator[RunRequest | SkipReason]:
        waiting = 0
        for tenant in config.tenants:
            for stream in manifest.streams:
                try:
                    key = what_waits(connectors.subject(tenant, manifest.connector, stream.id))
                except TidemarkError as error:
                    # A source that is away is no reason to stop looking at the others.
                    context.log.warning(f"{stream.id}: {type(error).__name__}: {error}")
                    continue
                if key is not None:
                    waiting += 1
                    yield RunRequest(
                        run_key=f"{tenant}/{stream.id}/{key}",
                        partition_key=tenant,
                        asset_selection=[
                            landed_key(manifest.connector, stream.id),
                            bronze_key(manifest.connector, stream.id),
                        ],
                        tags={"tidemark/started-by": "sensor"} | AGAIN,
                    )
        if not waiting:
            yield SkipReason("nothing waits to be read")

    return arrivals


def what_waits(subject: StreamSubject) -> str | None:
    """A name for the run that is due: the last one's, so that one that failed is started again. None if nothing waits.

    While a run holds the stream nothing is asked: it may be reading what waits, and a slot serves one at a time.
    """
    control = subject.platform.control
    if control.leases.holder(subject.place.lease) is not None:
        return None
    last = next(iter(control.runs.history(SYSTEM, subject.name, limit=1)), None)
    due = f"after {last.run_id}" if last else "first"
    state = subject.registry.get(subject.manifest.connector, subject.described.id)
    connector = subject.connector
    if state is None or not isinstance(connector, CheckpointConnector):
        return due
    with connector:
        return due if connector.has_news(subject.stream, state.last_cursor) else None


def upkeep(config: Config, manifest: Manifest) -> JobDefinition:
    """A job that compacts the tables of all streams of a connector and removes what nothing refers to."""
    name = f"{group(manifest.connector)}_upkeep"

    @op(name=f"{name}_clean_up")
    def clean_up(context: OpExecutionContext, connectors: ConnectorsResource) -> None:
        done = {
            stream.id: maintain(connectors.subject(context.partition_key, manifest.connector, stream.id))
            for stream in manifest.streams
        }
        context.add_output_metadata({"done": MetadataValue.json(done)})

    @job(name=name, partitions_def=tenants(config), description=f"Cleans up behind the runs of {manifest.connector}.")
    def upkeep_job() -> None:
        clean_up()

    return upkeep_job
