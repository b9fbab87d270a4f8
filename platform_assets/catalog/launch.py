"""Starts a catalogue run from the command line."""

from typing import Any
from uuid import uuid4

from dagster import DagsterInstance

from partitions.catalog import connections
from platform_assets.launch import executed
from tidemark.config import Config
from tidemark.control import ControlDatabase, RunRecord

JOB = "catalog"


def launch(config: Config, instance: DagsterInstance, connection: str, *, full: bool, allow_removals: bool) -> RunRecord:
    """Runs one connection to its end in this process and returns its row of the ledger."""
    subject, run_id = config.connection(connection).subject, str(uuid4())
    instance.add_dynamic_partitions(str(connections.name), [connection])
    control = ControlDatabase(config.control)
    return executed(
        instance,
        JOB,
        lambda: control.runs.find("catalog", subject, run_id),
        run_id=run_id,
        partition_key=connection,
        run_config=run_config(full=full, allow_removals=allow_removals),
    )


def run_config(*, full: bool = False, allow_removals: bool = False) -> dict[str, Any]:
    return {"ops": {"listing": {"config": {"full": full, "allow_removals": allow_removals}}}}
