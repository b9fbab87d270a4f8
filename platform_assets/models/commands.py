"""`tidemark model`: models at a shell."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_assets.models.looking import ModelName, Names, load_project, model_lineage, model_list
from platform_assets.opening import instance_of, platform_of, subject_of
from spark_code.models.system import MODEL
from tidemark import errors
from tidemark.cli.checks import print_checks
from tidemark.cli.noun import control_of, find_run, noun, observed, print_documents, print_run, run_each
from tidemark.cli.options import AsJson, ConfigFile, Full, Reason, RunName
from tidemark.cli.output import print_json, print_line, say
from tidemark.cli.tables import print_facts
from tidemark.config import Config, load_config
from tidemark.errors import TidemarkError, UsageError

if TYPE_CHECKING:
    from spark_code.models.materialize import MaterializationHandler
    from tidemark.control import RunRecord
    from tidemark.models.project import Model
    from tidemark.models.results import ModelResult
    from tidemark.models.subject import ModelSubject


def opened(config: Config, name: str) -> "ModelSubject":
    subject: ModelSubject = subject_of(config, MODEL, name)
    return subject


def register(app: typer.Typer) -> None:
    model = noun(app, MODEL, platform_of)
    for name, command in (
        ("run", model_run), ("plan", model_plan), ("diff", model_diff), ("check", model_check), ("rewind", model_rewind),
        ("reset", model_reset), ("rollback", model_rollback), ("list", model_list), ("lineage", model_lineage),
        ("state", model_state), ("backfill", model_backfill), ("restore", model_restore),
    ):  # fmt: skip
        model.command(name)(command)


# --- planning and running --------------------------------------------------------------------------------------------


def model_plan(
    names: Names = None,
    full: Annotated[bool, typer.Option("--full", help="As if everything were rebuilt.")] = False,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="KEY[..KEY]", help="As if these windows were rebuilt.")
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """What a run would do and why: new rows or everything, changes of schema, what is destructive. Nothing is written."""
    from tidemark.models.windows import TimeWindow, window_at

    loaded = load_config(config)
    chosen = load_project(loaded).selected(names or ())
    window = None
    if partition is not None:
        first, last = keys_of(chosen, partition, named=bool(names), full=full)
        spans = [model.metadata.partitions.by for model in chosen if model.metadata.partitions]
        window = TimeWindow(window_at(spans[0], first).start, window_at(spans[0], last).end)
    listed = [model.name for model in chosen]
    from spark_code.models.engine import ExecutionEngine
    from tidemark.cli.progress import progress

    with progress("planning"):
        engine = ExecutionEngine(platform_of(loaded), load_project(loaded))
        plans = engine.plan_models(listed, full=full, window=window) if listed else []
    if as_json:
        print_json([{"subject": MODEL.address(plan.name), **plan.to_json()} for plan in plans])
        return
    for plan in plans:
        print_plan(plan)


def print_plan(plan: Any) -> None:
    """A plan in a few lines; what takes something away is red."""
    expected = "" if plan.rows_expected is None else f", {plan.rows_expected:,} rows expected"
    print_line(f"{plan.name}: {plan.action} ({plan.reason}){expected}", style="bold")
    for change in plan.schema_diff:
        print_line(f"  schema: {change}")
    for step in plan.steps:
        print_line(
            f"  DESTRUCTIVE {step.words}" if step.destructive else f"  {step.words}", "red" if step.destructive else None
        )
    for warning in plan.warnings:
        print_line(f"  {warning}", style="yellow")
    if plan.refused:
        print_line(f"  would stop: {plan.refused}", style="red")


def model_run(
    names: Names = None,
    full: Full = False,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="KEY[..KEY]", help="Rebuild these windows: 2026-03-01, 2026-03-01..2026-03-05."),
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Bring models up to date, in dependency order: stage, check, publish, move the state."""
    loaded = load_config(config)
    project = load_project(loaded)
    chosen = project.selected(names or ())
    broken = project.broken_among(names or ())
    if not chosen and not broken:
        raise UsageError("there are no models. Write `models: FOLDER` into the configuration.")
    keys = None if partition is None else keys_of(chosen, partition, named=bool(names), full=full)
    from platform_assets.models.launch import launch
    from tidemark.cli.progress import progress

    with instance_of(loaded) as instance, observed(loaded), progress():
        done = launch(instance, control_of(loaded), project, chosen, full=full, keys=keys)
    results = [shown(each.name, each.record, each.failure) for each in done]
    unusable = [shown(each.name or "?", None, f"ConfigError: {each.error()}") for each in broken]
    if len(results) == len(names or ()) == 1 and results[0]["error"]:
        raise error_of(results[0]["error"])
    if as_json:
        print_documents(MODEL, names or (), [*results, *unusable])
    for each, result in zip(done, results, strict=True):
        if result["error"]:
            say(result["error"], "error")
        elif not as_json and each.record:
            print_run(each.record)
    for result in unusable:
        say(result["error"], "error")
    failed = [result for result in [*results, *unusable] if result["status"] not in ("published", "unchanged")]
    if failed:
        raise typer.Exit(max(code_of(result["error"]) for result in failed))


def keys_of(models: Sequence["Model"], text: str, *, named: bool, full: bool) -> tuple[str, str]:
    """The first and the last partition that are meant; all models must have them."""
    if full or not named:
        raise UsageError("--partition is of models that are named, and not of a run that rebuilds everything.")
    without = [model.name for model in models if model.metadata.partitions is None]
    if without:
        raise UsageError(f"{', '.join(without)}: no partitions. Write `partitions: {{by: day, start: …}}` into the header.")
    found = [model.metadata.partitions for model in models if model.metadata.partitions]
    spans = dict.fromkeys(each.by for each in found)
    if len(spans) > 1:
        raise UsageError(f"the models have partitions by {' and by '.join(spans)}. Run them one after the other.")
    try:
        return max(found, key=lambda each: each.start).range_of(text)
    except ValueError as wrong:
        raise UsageError(f"--partition: {wrong}") from None


def shown(name: str, record: "RunRecord | None", failure: str | None = None) -> dict[str, Any]:
    """What came of one model, from its row in the ledger."""
    from tidemark.runs.summary import no_run, run_summary

    if record is not None:
        return {**run_summary(record), "error": failure or record.error}
    if failure is not None:
        return no_run(MODEL.address(name), "failed", failure)
    return no_run(MODEL.address(name), "skipped", f"{name}: skipped, since a model that it reads failed.")


def error_of(text: str) -> TidemarkError:
    """An error that the ledger has by its name."""
    name, _, words = text.partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, TidemarkError):
        return kind(words)
    return TidemarkError(text)


def code_of(error: str | None) -> int:
    return error_of(error or "").exit_code


def model_check(names: Names = None, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Run the checks of models on what is published. Exit code 1 if a blocking one fails: a gate for CI."""
    loaded = load_config(config)
    from spark_code.models.checks import run_checks
    from tidemark.cli.progress import progress
    from tidemark.lake_names import CATALOG

    rows: list[dict[str, Any]] = []
    for model in load_project(loaded).selected(names or ()):
        checks = model.metadata.checks
        blocking = {check.name: check.blocking for check in checks}
        with progress(f"checking {model.name}"):
            results = (
                run_checks(model.name, platform_of(loaded).spark.table(f"{CATALOG}.{model.name}"), None, checks)
                if checks
                else ()
            )
        rows += [{"subject": MODEL.address(model.name), **asdict(each), "blocking": blocking[each.name]} for each in results]
    print_checks(rows, as_json=as_json)


def model_diff(
    name: ModelName,
    run_a: Annotated[str, typer.Argument(metavar="RUN_A")],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """How many rows were added and removed between what two runs left (an id, or latest, latest~1, …)."""
    subject = opened(load_config(config), name)
    from tidemark.models.differences import rows_between

    facts = rows_between(subject, find_run(subject, run_a), find_run(subject, run_b))
    print_json(facts) if as_json else print_facts(subject.address, facts)


# --- state -----------------------------------------------------------------------------------------------------------


def model_state(names: Names = None, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """How far models have got: what the last run left behind, and columns that can be restored."""
    from tidemark.models.state import ModelStateManager

    loaded = load_config(config)
    states = ModelStateManager(control_of(loaded))
    chosen = load_project(loaded).selected(names or ())
    rows = {model.name: states.get(model.name) for model in chosen}
    if as_json:
        print_json(
            [{"subject": MODEL.address(name), "state": asdict(state) if state else None} for name, state in rows.items()]
        )
        return
    for name, state in rows.items():
        if state is None:
            say(f"{name}: no state; the next run builds everything")
            continue
        facts = asdict(state) | {
            "snapshot": str(state.snapshot or ""),
            "columns": ", ".join(f"{column} {type_}" for column, type_ in state.columns.items()),
            "dropped": ", ".join(f"{each.name} (snapshot {each.snapshot})" for each in state.dropped),
        }
        print_facts(name, facts)


# --- going back ------------------------------------------------------------------------------------------------------


def model_rewind(
    name: ModelName,
    to: Annotated[str | None, typer.Option("--to", help="A value of the filter column.")] = None,
    version: Annotated[int | None, typer.Option("--version", help="A version of the state.")] = None,
    reason: Reason = "",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Move the last value back, so that the next run brings what is later again."""
    if (to is None) == (version is None):
        raise UsageError(f"rewind {name} either --to a value of its filter column, or to a --version of its state.")
    subject = opened(load_config(config), name)
    from tidemark.models.going_back import rewind_model

    moved = rewind_model(subject, to, version, reason)
    facts = {"subject": subject.address, "version": moved.version, "reason": reason}
    print_json(facts) if as_json else print_facts(subject.address, facts)


def model_reset(name: ModelName, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Take the state away, so that the next run rebuilds the model. Its table stays until then."""
    subject = opened(load_config(config), name)
    from tidemark.models.going_back import reset_model

    facts = {"subject": subject.address, "version": reset_model(subject, reason), "reason": reason}
    print_json(facts) if as_json else print_facts(subject.address, facts)


def model_rollback(
    name: ModelName, run_name: RunName, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None
) -> None:
    """Bring table and state back to what a run left."""
    loaded = load_config(config)
    subject = opened(loaded, name)
    from spark_code.models.checks import failures_at
    from tidemark.models.going_back import roll_back_model

    found = find_run(subject, run_name)
    judge = partial(failures_at, handler_of(loaded).adapter, subject)

    def one(_name: str) -> "RunRecord":
        return roll_back_model(subject, found, reason or f"rollback to run {found.run_id}", judge)

    run_each(MODEL, loaded, [name], [subject.address], one, as_json=as_json)


# --- columns ---------------------------------------------------------------------------------------------------------


def model_backfill(
    name: ModelName,
    columns: Annotated[list[str], typer.Argument(metavar="COLUMN…", help="Columns to fill.")],
    where: Annotated[str | None, typer.Option("--where", help="Only rows of the query that satisfy this condition.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Fill columns of rows that are in the table already from the query, by key: for columns that came later."""
    loaded = load_config(config)
    model = load_project(loaded).find(name)
    from spark_code.models.restore import backfill

    query = f"SELECT * FROM ({model.sql}\n) WHERE {where}" if where else model.sql
    run_each(
        MODEL, loaded, [name], [MODEL.address(name)],
        lambda _: record_of(loaded, backfill(handler_of(loaded), model.name, query, model.metadata, columns)),
        as_json=as_json,
    )  # fmt: skip


def model_restore(
    name: ModelName,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="A column that was dropped.")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Bring a dropped column back with the values it had. `tidemark model state` lists what can be restored."""
    loaded = load_config(config)
    model = load_project(loaded).find(name)
    from spark_code.models.restore import restore

    run_each(
        MODEL, loaded, [name], [MODEL.address(name)],
        lambda _: record_of(loaded, restore(handler_of(loaded), model.name, column, model.metadata)),
        as_json=as_json,
    )  # fmt: skip


def handler_of(config: Config) -> "MaterializationHandler":
    from spark_code.models.materialize import MaterializationHandler

    return MaterializationHandler(platform_of(config))


def record_of(config: Config, result: "ModelResult") -> "RunRecord":
    return control_of(config).runs.find(MODEL.address(result.name), result.run_id)
