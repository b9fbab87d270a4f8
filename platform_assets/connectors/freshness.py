"""Whether the last run of a stream is young enough, per tenant: one fresh tenant must not hide a stale one."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from dagster import (
    AssetCheckEvaluation,
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    DagsterInstance,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    asset_check,
    sensor,
)
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

from partitions.connectors import tenants
from platform_assets.checks import reported
from platform_assets.connectors.automation import address_of
from platform_assets.keys import bronze_key
from resources.connectors import ConnectorsResource
from spark_code.platform import Platform
from tidemark.checks import CheckResult
from tidemark.config import Config
from tidemark.connectors.durations import Duration
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.stream import StreamSpec
from tidemark.control.runs import COUNTING
from tidemark.runs import Mode

CHECK = "is_fresh"
# A verdict that stays the same is said again after so long, so that nobody wonders whether it is still looked at.
REPEATED = timedelta(hours=1)
HISTORY = 200


def verdict(platform: Platform, address: str, limit: Duration) -> CheckResult:
    """Judges by the ledger: when the last run ended that read the source and counts."""
    now, allowed = platform.clock.now(), timedelta(microseconds=limit.nanoseconds // 1000)
    ended = last_ended(platform, address)
    if ended is None:
        return CheckResult(CHECK, False, f"{address}: no run has counted yet", {})
    age = now - ended
    summary = f"{address}: the last run that counts ended {ended:%Y-%m-%d %H:%M:%S} UTC; allowed is {limit}"
    return CheckResult(CHECK, age <= allowed, summary, {"age in seconds": round(age.total_seconds())})


def last_ended(platform: Platform, address: str) -> datetime | None:
    for run in platform.control.runs.history(address, limit=HISTORY):
        if run.status in COUNTING and run.mode in (Mode.FULL, Mode.INCREMENTAL):
            return run.finished_at
    return None


def freshness_check(config: Config, manifest: Manifest, stream: StreamSpec, limit: Duration) -> AssetChecksDefinition:
    """The check of a stream, a verdict for each tenant. It blocks nothing: stale data is better than none."""
    bronze = bronze_key(manifest.connector, stream.id)

    @asset_check(
        asset=bronze,
        name=CHECK,
        partitions_def=tenants(config),
        description=f"The last run of a tenant is not older than {limit}.",
    )
    def is_fresh(context: AssetCheckExecutionContext, connectors: ConnectorsResource) -> AssetCheckResult:
        address = address_of(context.partition_key, manifest, stream.id)
        result = reported(verdict(connectors.platform.platform, address, limit), bronze)
        return result._replace(severity=AssetCheckSeverity.WARN)

    return is_fresh


def freshness_sensor(config: Config, manifests: Sequence[Manifest]) -> SensorDefinition:
    """Judges every stream of every tenant again and again: a stream that nobody runs would never be judged otherwise."""

    @sensor(
        name="stream_freshness",
        minimum_interval_seconds=60,
        default_status=DefaultSensorStatus.RUNNING,
        description="Judges how old the last run of every stream and tenant is, where a manifest says how old it may be.",
    )
    def stream_freshness(context: SensorEvaluationContext, connectors: ConnectorsResource) -> SensorResult:
        platform, said = connectors.platform.platform, json.loads(context.cursor or "{}")
        now = platform.clock.now()
        events = []
        for manifest, stream, tenant in _promises(config, manifests):
            address = address_of(tenant, manifest, stream.id)
            assert manifest.freshness is not None, "only those are judged"
            found = verdict(platform, address, manifest.freshness)
            passed, at = said.get(address, (None, 0))
            if passed is found.passed and now.timestamp() - at < REPEATED.total_seconds():
                continue
            said[address] = (found.passed, now.timestamp())
            events.append(_evaluation(found, manifest, stream, tenant))
            _forget_last(context.instance, events[-1])
        return SensorResult(asset_events=events, cursor=json.dumps(said), skip_reason=None if events else "as before")

    return stream_freshness


def _promises(config: Config, manifests: Sequence[Manifest]) -> list[tuple[Manifest, StreamSpec, str]]:
    return [(each, stream, tenant) for each in manifests for stream in each.streams for tenant in config.tenants]


def _forget_last(instance: DagsterInstance, verdict: AssetCheckEvaluation) -> None:
    """Dagster keeps one verdict of a check and partition for a run, and all that come from no run count as of the same: it
    takes a second one only when the first is gone."""
    storage, kept = instance.event_log_storage, AssetCheckExecutionsTable.c
    if isinstance(storage, SqlEventLogStorage):
        with storage.index_connection() as connection:
            connection.execute(
                AssetCheckExecutionsTable.delete().where(
                    kept.asset_key == verdict.asset_key.to_string(),
                    kept.check_name == verdict.check_name,
                    kept.partition == verdict.partition,
                    kept.run_id == RUNLESS_RUN_ID,
                )
            )


def _evaluation(found: CheckResult, manifest: Manifest, stream: StreamSpec, tenant: str) -> AssetCheckEvaluation:
    return AssetCheckEvaluation(
        asset_key=bronze_key(manifest.connector, stream.id),
        check_name=CHECK,
        passed=found.passed,
        description=found.summary,
        metadata=found.facts,
        severity=AssetCheckSeverity.WARN,
        partition=tenant,
    )
