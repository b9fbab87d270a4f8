"""Runs models from the command line: the same job, in the same instance, as from the web UI."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from dagster import DagsterEvent, DagsterExecutionInterruptedError, DagsterInstance

from platform_assets.launch import QUIET, REPOSITORY
from platform_assets.models.assets import op_name
from platform_assets.models.definitions import JOB
from platform_assets.models.metadata import model_key
from resources.models import run_name
from tidemark import errors
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import TidemarkError, UnknownRun
from tidemark.models.place import SYSTEM


@dataclass(frozen=True)
class Launched:
    """What came of one model: its row in the ledger, and why it failed where there is none."""

    name: str
    record: RunRecord | None
    failure: str | None


def launch(instance: DagsterInstance, control: ControlDatabase, names: Sequence[str], *, full: bool) -> list[Launched]:
    """Runs the models to their end in this process, each behind those it reads."""
    from platform_assets.definitions import defs

    dagster_run = str(uuid4())
    try:
        done = defs.resolve_job_def(JOB).execute_in_process(
            instance=instance,
            run_id=dagster_run,
            run_config={"ops": {op_name(name): {"config": {"full": full}} for name in names}, **QUIET},
            tags={**REPOSITORY, "tidemark/started-by": "command line"},
            asset_selection=[model_key(name) for name in names],
            raise_on_error=False,
        )
    except DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None
    failures = {event.step_key: told(event) for event in done.all_events if event.is_step_failure}
    return [Launched(name, record_of(control, dagster_run, name), failures.get(op_name(name))) for name in names]


def told(event: DagsterEvent) -> str:
    """The error of a step by its name; the words of foreign ones may quote rows, and stay with Dagster."""
    error = event.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    name = error.cls_name if error and error.cls_name else "an error without a name"
    kind = getattr(errors, name, None)
    if error is None or not (isinstance(kind, type) and issubclass(kind, TidemarkError)):
        return f"{name}: see the run in `tidemark ui`."
    return f"{name}: {error.message.partition(': ')[2].strip()}"


def record_of(control: ControlDatabase, dagster_run: str, name: str) -> RunRecord | None:
    try:
        return control.runs.find(SYSTEM, name, run_name(dagster_run, name))
    except UnknownRun:
        return None
