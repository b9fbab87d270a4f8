"""Starts the run of a stream from the command line."""

from dagster import DagsterInstance

from platform_assets import launch as launcher
from platform_assets.connectors.assets import group
from platform_assets.keys import bronze_key, landed_key
from resources.connectors import ConnectorsResource
from resources.platform import PlatformResource
from tidemark.control import RunRecord


def launch(
    instance: DagsterInstance, tenant: str, connector: str, stream: str, *, full: bool, allow_deletions: bool = False
) -> RunRecord:
    """Runs one stream to its end in this process and returns its row of the ledger."""
    subject = ConnectorsResource(platform=PlatformResource()).subject(tenant, connector, stream)
    landed = landed_key(connector, stream)
    settings = {"full": full, "allow_deletions": allow_deletions}
    return launcher.only(
        launcher.launch(
            instance,
            subject.platform.control,
            group(connector),
            [subject.address],
            partition=tenant,
            selection=[landed, bronze_key(connector, stream)],
            run_config={"ops": {"__".join(landed.path): {"config": settings}}},
        )
    )
