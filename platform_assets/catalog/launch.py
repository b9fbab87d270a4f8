"""Starts a catalogue run from the command line: the same job, in the same instance, as from the web UI."""

from typing import Any
from uuid import uuid4

from dagster import DagsterExecutionInterruptedError, DagsterInstance
from dagster._core.errors import DagsterAssetCheckFailedError

from partitions.catalog import connections
from tidemark.config import Config
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import ChecksFailed

JOB = "catalog"
# What the web UI finds the runs of a job by.
REPOSITORY = {".dagster/repository": "__repository__@tidemark"}


def launch(config: Config, instance: DagsterInstance, connection: str, *, full: bool, allow_removals: bool) -> RunRecord:
    """Runs one connection to its end in this process and returns its row of the ledger."""
    from platform_assets.definitions import defs

    subject = config.connection(connection).subject
    instance.add_dynamic_partitions(str(connections.name), [connection])
    run_id = str(uuid4())
    control = ControlDatabase(config.control)
    try:
        defs.resolve_job_def(JOB).execute_in_process(
            instance=instance,
            partition_key=connection,
            run_id=run_id,
            run_config=run_config(full=full, allow_removals=allow_removals, quiet=True),
            tags={**REPOSITORY, "tidemark/started-by": "command line"},
            raise_on_error=True,
        )
    except DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    except DagsterAssetCheckFailedError as stopped:
        record = control.runs.find("catalog", subject, run_id)
        raise ChecksFailed((record.error or str(stopped)).removeprefix("ChecksFailed: ")) from stopped
    return control.runs.find("catalog", subject, run_id)


def run_config(*, full: bool = False, allow_removals: bool = False, quiet: bool = False) -> dict[str, Any]:
    config: dict[str, Any] = {"ops": {"listing": {"config": {"full": full, "allow_removals": allow_removals}}}}
    if quiet:
        config["loggers"] = {"console": {"config": {"log_level": "CRITICAL"}}}
    return config
