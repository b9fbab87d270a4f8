"""Starts the run of a stream from the command line."""

from uuid import uuid4

from dagster import DagsterInstance

from platform_assets.connectors.assets import bronze_key, group, landed_key
from platform_assets.launch import executed
from resources.connectors import ConnectorsResource, run_name
from resources.platform import PlatformResource
from tidemark.connectors.place import SYSTEM
from tidemark.control import RunRecord


def launch(
    instance: DagsterInstance, tenant: str, connector: str, stream: str, *, full: bool, allow_deletions: bool = False
) -> RunRecord:
    """Runs one stream to its end in this process and returns its row of the ledger."""
    subject = ConnectorsResource(platform=PlatformResource()).subject(tenant, connector, stream)
    dagster_run = str(uuid4())
    landed = landed_key(connector, stream)
    return executed(
        instance,
        group(connector),
        lambda: subject.platform.control.runs.find(SYSTEM, subject.name, run_name(dagster_run, subject)),
        run_id=dagster_run,
        partition_key=tenant,
        asset_selection=[landed, bronze_key(connector, stream)],
        run_config={"ops": {"__".join(landed.path): {"config": {"full": full, "allow_deletions": allow_deletions}}}},
    )
