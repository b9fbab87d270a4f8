"""Starts a catalogue run from the command line."""

from typing import Any

from dagster import DagsterInstance

from partitions.catalog import connections
from platform_assets import launch as launcher
from tidemark.config import Config
from tidemark.control import ControlDatabase, RunRecord

JOB = "catalog"


def launch(config: Config, instance: DagsterInstance, connection: str, *, full: bool, allow_removals: bool) -> RunRecord:
    """Runs one connection to its end in this process and returns its row of the ledger."""
    subject = config.connection(connection).address
    instance.add_dynamic_partitions(str(connections.name), [connection])
    settings = run_config(full=full, allow_removals=allow_removals)
    control = ControlDatabase(config.control)
    return launcher.only(launcher.launch(instance, control, JOB, [subject], partition=connection, run_config=settings))


def run_config(*, full: bool = False, allow_removals: bool = False) -> dict[str, Any]:
    return {"ops": {"listing": {"config": {"full": full, "allow_removals": allow_removals}}}}
