"""Runs models from the command line: the same job, in the same instance, as from the web UI."""

from collections.abc import Sequence
from uuid import uuid4

from dagster import DagsterExecutionInterruptedError, DagsterInstance

from platform_assets.launch import QUIET, REPOSITORY
from platform_assets.models.assets import op_name
from platform_assets.models.definitions import JOB
from platform_assets.models.metadata import model_key
from resources.models import run_name
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import UnknownRun
from tidemark.models.place import SYSTEM


def launch(
    instance: DagsterInstance, control: ControlDatabase, names: Sequence[str], *, full: bool
) -> dict[str, RunRecord | None]:
    """Runs the models to their end in this process; what the ledger says of each, None where it was not begun."""
    from platform_assets.definitions import defs

    dagster_run = str(uuid4())
    try:
        defs.resolve_job_def(JOB).execute_in_process(
            instance=instance,
            run_id=dagster_run,
            run_config={"ops": {op_name(name): {"config": {"full": full}} for name in names}, **QUIET},
            tags={**REPOSITORY, "tidemark/started-by": "command line"},
            asset_selection=[model_key(name) for name in names],
            raise_on_error=False,
        )
    except DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    return {name: record_of(control, dagster_run, name) for name in names}


def record_of(control: ControlDatabase, dagster_run: str, name: str) -> RunRecord | None:
    try:
        return control.runs.find(SYSTEM, name, run_name(dagster_run, name))
    except UnknownRun:
        return None
