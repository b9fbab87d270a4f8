"""Sensors that keep Dagster in sync with what is: partitions with the configuration, runs with their processes."""

import logging
from collections.abc import Callable, Iterable

from dagster import (
    AddDynamicPartitionsRequest,
    DefaultSensorStatus,
    Definitions,
    DeleteDynamicPartitionsRequest,
    DynamicPartitionsDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from partitions.catalog import connections
from partitions.subjects import subjects
from platform_assets.dead_runs import cancel_orphans, close_dead
from platform_assets.notify import notify_on_failure
from platform_assets.upkeep import dagster_retention, upkeep_job, upkeep_schedules
from resources.platform import PlatformResource
from tidemark.config import Config
from tidemark.runs.system import Configured, KnownSubjects, configured_subjects, known_subjects

log = logging.getLogger(__name__)


@sensor(
    minimum_interval_seconds=30,
    default_status=DefaultSensorStatus.RUNNING,
    description="Keeps the partitions in sync with the connections, streams and models of the configuration.",
)
def sync_partitions(context: SensorEvaluationContext, platform: PlatformResource) -> SensorResult:
    """In an instance of several hosts it only adds: what this host does not know may be another's, whose runs fail while
    their partition is away. What a broken file named stays until the file is fixed or gone."""
    config = platform.platform.config
    alone = config.dagster_storage is None
    configured = configured_subjects(config)
    broken = KnownSubjects(each for each in configured if each.broken)
    usable = [each.address for each in configured if not each.broken]
    requests = [
        *_changes(context, connections, config.connections, lambda name: alone and f"catalog/{name}" not in broken),
        *_changes(context, subjects, usable, lambda address: alone and address not in broken),
    ]
    return SensorResult(dynamic_partitions_requests=requests, skip_reason=None if requests else "in sync")


def _changes(
    context: SensorEvaluationContext,
    of: DynamicPartitionsDefinition,
    names: Iterable[str],
    may_delete: Callable[[str], bool],
) -> list[AddDynamicPartitionsRequest | DeleteDynamicPartitionsRequest]:
    wanted, known = set(names), set(context.instance.get_dynamic_partitions(str(of.name)))
    added, removed = sorted(wanted - known), sorted(filter(may_delete, known - wanted))
    return [
        *([of.build_add_request(added)] if added else []),
        *([of.build_delete_request(removed)] if removed else []),
    ]


@sensor(
    minimum_interval_seconds=30,
    default_status=DefaultSensorStatus.RUNNING,
    description="Closes runs whose process is gone, and cancels waiting ones of subjects that are no more configured.",
)
def close_dead_runs(context: SensorEvaluationContext, platform: PlatformResource) -> SkipReason:
    opened = platform.platform
    closed = close_dead(context.instance, opened.control)
    origin = context.code_location_origin
    closed += cancel_orphans(
        context.instance, lambda: known_subjects(opened.config), origin.location_name if origin else None
    )
    return SkipReason(f"closed {', '.join(closed)}" if closed else "every run lives")


def warn_of_broken(configured: Iterable[Configured]) -> None:
    """Says once for every file what is wrong: the code location loads without it."""
    for finding in dict.fromkeys(finding for each in configured for finding in each.broken):
        log.warning("left out: %s", finding)


def shared_definitions(config: Config) -> Definitions:
    """What Dagster does for all systems alike."""
    configured = configured_subjects(config)
    warn_of_broken(configured)
    return Definitions(
        jobs=[upkeep_job, dagster_retention],
        schedules=upkeep_schedules(configured),
        sensors=[sync_partitions, close_dead_runs, notify_on_failure],
    )
