"""Starts a run from the command line: the same job, in the same instance, as from the web UI."""

from collections.abc import Callable, Mapping
from typing import Any

from dagster import DagsterExecutionInterruptedError, DagsterInstance
from dagster._core.errors import DagsterAssetCheckFailedError

from tidemark.control import RunRecord
from tidemark.errors import ChecksFailed

# What the web UI finds the runs of a job by.
REPOSITORY = {".dagster/repository": "__repository__@tidemark"}
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def executed(
    instance: DagsterInstance,
    job: str,
    record: Callable[[], RunRecord],
    *,
    run_id: str,
    run_config: Mapping[str, Any],
    **options: Any,
) -> RunRecord:
    """Runs a job to its end in this process and returns what the ledger says of it; its errors come by name."""
    from platform_assets.definitions import defs

    try:
        defs.resolve_job_def(job).execute_in_process(
            instance=instance,
            run_id=run_id,
            run_config={**run_config, **QUIET},
            tags={**REPOSITORY, "tidemark/started-by": "command line"},
            raise_on_error=True,
            **options,
        )
    except DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    except DagsterAssetCheckFailedError as stopped:
        raise ChecksFailed((record().error or str(stopped)).removeprefix("ChecksFailed: ")) from stopped
    return record()
