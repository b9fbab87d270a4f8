"""When streams run by themselves: at their time, or when files or messages wait to be read."""

import time
from collections.abc import Iterator, Sequence

from dagster import (
    AssetKey,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    JobDefinition,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    schedule,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from platform_assets.automation import DEADLINE, in_the_way, resting, unattended, within_deadline
from platform_assets.connectors.assets import group
from platform_assets.keys import bronze_key, landed_key
from resources.connectors import ConnectorsResource
from spark_code.connectors.subject import StreamSubject
from tidemark.address import Address
from tidemark.config import Config
from tidemark.connectors.contract import CheckpointConnector
from tidemark.connectors.manifest import Manifest
from tidemark.errors import TidemarkError

Job = JobDefinition | UnresolvedAssetJobDefinition

# All streams of a connector share one evaluation, which Dagster ends after 60 seconds.
LOOKING_SECONDS = 2 * DEADLINE


def scheduled(config: Config, manifest: Manifest, ingest: Job, cron: str) -> ScheduleDefinition:
    """A schedule that starts one run for every tenant, of the streams that no other run is at."""

    @schedule(
        job=ingest,
        cron_schedule=cron,
        execution_timezone="UTC",
        name=group(manifest.connector),
        description=f"Brings {manifest.connector} up to date for every tenant.",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    def scheduled_run(
        context: ScheduleEvaluationContext, connectors: ConnectorsResource
    ) -> Iterator[RunRequest | SkipReason]:
        control, busy = connectors.platform.platform.control, []
        for tenant in config.tenants:
            free = []
            for stream in manifest.streams:
                wanted = [address_of(tenant, manifest, stream.id)]
                why = in_the_way(context.instance, control, wanted, schedule=group(manifest.connector))
                busy.append(why) if why else free.append(stream.id)
            if free:
                yield request("schedule", tenant, manifest, free, key=tenant)
        if len(busy) == len(config.tenants) * len(manifest.streams):
            yield SkipReason("; ".join(busy))

    return scheduled_run


def watched(config: Config, manifest: Manifest, ingest: Job, seconds: int) -> SensorDefinition:
    """A sensor for sources that can say whether something waits to be read: files and logs."""

    @sensor(
        job=ingest,
        name=f"watch_{group(manifest.connector)}",
        minimum_interval_seconds=seconds,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Starts a run when something waits to be read at {manifest.connector}.",
    )
    def arrivals(context: SensorEvaluationContext, connectors: ConnectorsResource) -> Iterator[RunRequest | SkipReason]:
        streams = [(tenant, stream.id) for tenant in config.tenants for stream in manifest.streams]
        # From where the last evaluation had to stop: a slow source hides none for ever.
        first = int(context.cursor or 0) % len(streams)
        stop, said = time.monotonic() + LOOKING_SECONDS, []
        for position, (tenant, stream) in enumerate([*streams[first:], *streams[:first]], first):
            left = stop - time.monotonic()
            if left < 1:
                context.update_cursor(str(position % len(streams)))
                break
            why = why_not(context, connectors.subject(tenant, manifest.connector, stream), min(left, DEADLINE))
            if why is None:
                yield request("sensor", tenant, manifest, [stream])
            else:
                said.append(why)
        if said:
            yield SkipReason("; ".join(said))

    return arrivals


def why_not(context: SensorEvaluationContext, subject: StreamSubject, seconds: float) -> str | None:
    """Why no run of the stream is started now; None if something waits for one."""
    control, address = subject.control, subject.address
    # While a run holds the stream nothing is asked: it may be reading what waits, and a slot serves one at a time.
    busy = in_the_way(context.instance, control, [address]) or resting(context.instance, address)
    if busy:
        return busy
    try:
        due = within_deadline(address, lambda: waits(subject), seconds)
    except TidemarkError as error:
        # A source that is away is no reason to stop looking at the others. No log of it: each look would leave a file.
        return f"{address}: {type(error).__name__}: {error}"
    return None if due else f"{address}: nothing waits to be read"


def waits(subject: StreamSubject) -> bool:
    """Whether the source has more than the state knows: what a run has read that counts moves the state, nothing else."""
    state = subject.marks.get(subject.address)
    connector = subject.connector
    if state is None or not isinstance(connector, CheckpointConnector):
        return True
    with connector:
        return connector.has_news(subject.stream, state.value)


def request(by: str, tenant: str, manifest: Manifest, streams: Sequence[str], key: str | None = None) -> RunRequest:
    """A run of some streams of a tenant. A schedule needs a key that separates its requests of one time."""
    return RunRequest(
        run_key=key,
        partition_key=tenant,
        asset_selection=[key for stream in streams for key in keys_of(manifest, stream)],
        tags=unattended(by, *(address_of(tenant, manifest, stream) for stream in streams)),
    )


def keys_of(manifest: Manifest, stream: str) -> list[AssetKey]:
    return [landed_key(manifest.connector, stream), bronze_key(manifest.connector, stream)]


def address_of(tenant: str, manifest: Manifest, stream: str) -> str:
    return str(Address.stream(tenant, manifest.connector, stream))
