"""Schedules, sensors: when the catalogue runs by itself, and who is told when it fails."""

import smtplib
import ssl
from collections.abc import Iterator
from email.message import EmailMessage

from dagster import (
    DefaultScheduleStatus,
    DefaultSensorStatus,
    JobDefinition,
    RunFailureSensorContext,
    RunRequest,
    ScheduleDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    run_failure_sensor,
    schedule,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.errors import DagsterAssetCheckFailedError
from dagster._core.storage.tags import MAX_RETRIES_TAG, PARTITION_NAME_TAG
from dagster_shared.error import SerializableErrorInfo

from partitions.catalog import connections
from platform_assets.catalog.jobs import catalog_job, catalog_upkeep
from resources.catalog import CatalogResource
from tidemark.config import Config, EmailSettings
from tidemark.errors import TidemarkError

SENDING_SECONDS = 30
# How messages of Dagster's event log begin.
OURS = f"{TidemarkError.__module__}."
SAFE = (OURS, f"{DagsterAssetCheckFailedError.__module__}.{DagsterAssetCheckFailedError.__name__}")
# A run that nobody watches is tried again; the change that caused it would otherwise wait for the next one.
AGAIN = {MAX_RETRIES_TAG: "2"}
ESCAPED = {"_": "__", "-": "_dash_", ".": "_dot_"}


@sensor(
    minimum_interval_seconds=30,
    default_status=DefaultSensorStatus.RUNNING,
    description="Keeps the partitions in step with the connections of the configuration.",
)
def connections_in_step(context: SensorEvaluationContext, catalog: CatalogResource) -> SensorResult:
    wanted = set(catalog.platform.platform.config.connections)
    known = set(context.instance.get_dynamic_partitions(str(connections.name)))
    requests = []
    if wanted - known:
        requests.append(connections.build_add_request(sorted(wanted - known)))
    if known - wanted:
        requests.append(connections.build_delete_request(sorted(known - wanted)))
    return SensorResult(dynamic_partitions_requests=requests, skip_reason=None if requests else "in step")


@sensor(job=catalog_job, minimum_interval_seconds=60, description="Starts a run when a source's own signal moved.")
def sources_changed(context: SensorEvaluationContext, catalog: CatalogResource) -> Iterator[RunRequest | SkipReason]:
    """Asks every source for its fingerprint, one statement each, and remembers what it said."""
    seen = decode(context.cursor)
    told: dict[str, str] = {}
    for name in context.instance.get_dynamic_partitions(str(connections.name)):
        try:
            subject = catalog.subject(name)
            told[name] = subject.pack.fingerprint(subject.scope)
        except TidemarkError as error:
            # A source that is away is no reason to forget what it said, nor to stop looking at the others.
            context.log.warning(f"{name}: {type(error).__name__}: {error}")
            if name in seen:
                told[name] = seen[name]
            continue
        if told[name] != seen.get(name):
            yield RunRequest(partition_key=name, tags={"tidemark/started-by": "sensor"} | AGAIN)
    context.update_cursor(encode(told))
    if told == seen:
        yield SkipReason("no source changed")


def encode(told: dict[str, str]) -> str:
    return "\n".join(f"{name}={fingerprint}" for name, fingerprint in sorted(told.items()))


def decode(cursor: str | None) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (cursor or "").splitlines())


def schedules(config: Config) -> list[ScheduleDefinition]:
    """Per connection, one for its runs if it names a time, and one for its upkeep."""
    made = []
    for name, connection in config.connections.items():
        if connection.schedule:
            made.append(scheduled(catalog_job, "catalog", name, connection.schedule, f"Brings {name} up to date."))
        made.append(scheduled(catalog_upkeep, "upkeep", name, connection.upkeep, f"Compares and cleans up {name}."))
    return made


def scheduled(
    job: JobDefinition | UnresolvedAssetJobDefinition, prefix: str, connection: str, cron: str, what: str
) -> ScheduleDefinition:
    # Dagster allows letters, digits and _ only. Escaped, so that `shop-eu`, `shop.eu` and `shop_eu` stay three schedules.
    plain = "".join(ESCAPED.get(letter, letter) for letter in connection)

    @schedule(
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        name=f"{prefix}_{plain}",
        description=what,
        default_status=DefaultScheduleStatus.STOPPED,
    )
    def at_its_time() -> RunRequest:
        return RunRequest(partition_key=connection, tags={"tidemark/started-by": "schedule"} | AGAIN)

    return at_its_time


@run_failure_sensor(
    default_status=DefaultSensorStatus.RUNNING,
    # Runs of the command line belong to no code location: without this, nobody would hear of those.
    monitor_all_code_locations=True,
    description="Sends an e-mail when a run fails. Needs `email:` in the configuration.",
)
def failure_told(context: RunFailureSensorContext, catalog: CatalogResource) -> SkipReason | None:
    config, run = catalog.platform.platform.config, context.dagster_run
    connection = run.tags.get(PARTITION_NAME_TAG)
    if config.email is None:
        return SkipReason("no `email:` in the configuration")
    if connection is None or connection not in (*config.connections, *config.tenants):
        return SkipReason("not a run of one of the connections or tenants")
    send(config.email, failure_message(config.email, run.job_name, connection, run.run_id, cause(context)))
    return None


def cause(context: RunFailureSensorContext) -> str:
    """What a mail may tell: our own errors and names of checks hold no secret and no state. Others by name only."""
    for event in context.get_step_failure_events():
        chain = list(causes(event.step_failure_data.error))
        for error in chain:
            if error.message.startswith(SAFE):
                return error.message.strip().removeprefix(OURS)
        if chain:
            return f"{chain[-1].cls_name}: see the run's log"
    return "see the run's log"


def causes(error: SerializableErrorInfo | None) -> Iterator[SerializableErrorInfo]:
    """The error and what it was raised from, down to the bottom."""
    while error:
        yield error
        error = error.cause


def failure_message(settings: EmailSettings, job: str, connection: str, run_id: str, why: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = settings.sender, ", ".join(settings.to)
    message["Subject"] = f"Tidemark: {job} of {connection} failed"
    message.set_content(
        f"Run {run_id} of {connection} failed:\n\n    {why}\n\n"
        f"`tidemark history {connection}` shows its runs. Whatever this one left undone, the next run puts right.\n"
    )
    return message


def send(settings: EmailSettings, message: EmailMessage) -> None:
    with smtplib.SMTP(settings.host, settings.port, timeout=SENDING_SECONDS) as server:
        if settings.starttls:
            server.starttls(context=ssl.create_default_context())
        if settings.username and settings.password:
            server.login(settings.username, settings.password.get_secret_value())
        server.send_message(message)
