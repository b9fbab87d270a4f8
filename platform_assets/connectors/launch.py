"""Starts the run of a stream from the command line: the same assets, in the same instance, as from the web UI."""

from uuid import uuid4

from dagster import AssetKey, DagsterExecutionInterruptedError, DagsterInstance
from dagster._core.errors import DagsterAssetCheckFailedError

from platform_assets.catalog.launch import REPOSITORY
from platform_assets.connectors.assets import bronze_key, group, landed_key
from resources.connectors import ConnectorsResource, run_name
from resources.platform import PlatformResource
from tidemark.connectors.place import SYSTEM
from tidemark.control import RunRecord
from tidemark.errors import ChecksFailed


def launch(instance: DagsterInstance, tenant: str, connector: str, stream: str, *, full: bool) -> RunRecord:
    """Runs one stream to its end in this process and returns its row of the ledger."""
    from platform_assets.definitions import defs

    subject = ConnectorsResource(platform=PlatformResource()).subject(tenant, connector, stream)
    dagster_run = str(uuid4())
    runs, run_id = subject.platform.control.runs, run_name(dagster_run, subject)
    landed = landed_key(connector, stream)
    try:
        defs.resolve_job_def(group(connector)).execute_in_process(
            instance=instance,
            partition_key=tenant,
            run_id=dagster_run,
            asset_selection=[landed, bronze_key(connector, stream)],
            run_config={
                "ops": {op_name(landed): {"config": {"full": full}}},
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            },
            tags={**REPOSITORY, "tidemark/started-by": "command line"},
            raise_on_error=True,
        )
    except DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    except DagsterAssetCheckFailedError as stopped:
        record = runs.find(SYSTEM, subject.name, run_id)
        raise ChecksFailed((record.error or str(stopped)).removeprefix("ChecksFailed: ")) from stopped
    return runs.find(SYSTEM, subject.name, run_id)


def op_name(key: AssetKey) -> str:
    return "__".join(key.path)
