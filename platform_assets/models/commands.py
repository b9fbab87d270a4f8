"""`tidemark model`: models at a shell."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_assets.models.looking import ModelName, Names, load_project, model_lineage, model_list
from tidemark import errors
from tidemark.cli.app import AsJson, ConfigFile
from tidemark.cli.output import cell, console, messages, print_facts, print_json, print_table
from tidemark.cli.running import Progress
from tidemark.config import Config, load_config
from tidemark.errors import TidemarkError, UsageError

if TYPE_CHECKING:
    from resources.models import ModelsResource
    from tidemark.control import ControlDatabase, RunRecord
    from tidemark.models.project import Model
    from tidemark.models.results import ModelResult


def register(app: typer.Typer) -> None:
    model = typer.Typer(help="Models: queries whose results are kept as tables and views.", no_args_is_help=True)
    for name, command in (
        ("list", model_list), ("plan", model_plan), ("run", model_run), ("check", model_check), ("state", model_state),
        ("history", model_history), ("lineage", model_lineage), ("backfill", model_backfill), ("restore", model_restore),
    ):  # fmt: skip
        model.command(name)(command)
    app.add_typer(model, name="model")


def control_of(config: Config) -> "ControlDatabase":
    from tidemark.control import ControlDatabase

    return ControlDatabase(config.control)


def opened(config: Config) -> "ModelsResource":
    """The models as Dagster has them, in the same platform."""
    from resources.models import ModelsResource
    from resources.platform import PlatformResource

    return ModelsResource(platform=PlatformResource(config_path=str(config.path)))


# --- planning and running --------------------------------------------------------------------------------------------


def model_plan(
    names: Names = None,
    full: Annotated[bool, typer.Option("--full", help="As if everything were made anew.")] = False,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="KEY[..KEY]", help="As if these windows were made anew.")
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
    with Progress("plan"):
        plans = opened(loaded).engine.plan_models(listed, full=full, window=window) if listed else []
    if as_json:
        print_json([plan.to_json() for plan in plans])
        return
    for plan in plans:
        print_plan(plan)


def print_plan(plan: Any) -> None:
    """A plan in a few lines; what takes something away is red."""
    expected = "" if plan.rows_expected is None else f", {plan.rows_expected:,} rows expected"
    console.print(f"[bold]{plan.name}[/bold]: {plan.action} ({cell(plan.reason)}){expected}", highlight=False)
    for change in plan.schema_diff:
        console.print(f"  schema: {cell(change)}", highlight=False)
    for step in plan.steps:
        mark = "[red]DESTRUCTIVE[/red] " if step.destructive else ""
        console.print(f"  {mark}{cell(step.words)}", highlight=False)
    for warning in plan.warnings:
        console.print(f"  [yellow]{cell(warning)}[/yellow]", highlight=False)
    if plan.refused:
        console.print(f"  [red]would stop:[/red] {cell(plan.refused)}", highlight=False)


def model_run(
    names: Names = None,
    full: Annotated[bool, typer.Option("--full", help="Make everything anew, whatever the state says.")] = False,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition", metavar="KEY[..KEY]", help="Make these windows anew: 2026-03-01, 2026-03-01..2026-03-05."
        ),
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Bring models up to date, each behind those it reads: stage, check, publish, move the state."""
    loaded = load_config(config)
    project = load_project(loaded)
    chosen = project.selected(names or ())
    if not chosen:
        raise UsageError("there are no models. Write `models: FOLDER` into the configuration.")
    keys = None if partition is None else keys_of(chosen, partition, named=bool(names), full=full)
    from platform_assets.instance import open_instance
    from platform_assets.models.launch import launch

    with open_instance(loaded) as instance, Progress("models"):
        done = launch(instance, control_of(loaded), project, chosen, full=full, keys=keys)
    results = [shown(each.name, each.record, each.failure) for each in done]
    if as_json:
        print_json(results[0] if len(names or ()) == 1 and len(results) == 1 else results)
    for result in results:
        if result["error"]:
            messages.print(result["error"], style="red", markup=False, soft_wrap=True)
        elif not as_json:
            console.print(line_of(result), highlight=False)
    failed = [result for result in results if result["status"] not in ("published", "unchanged")]
    if failed:
        raise typer.Exit(max(code_of(result["error"]) for result in failed))


def keys_of(models: Sequence["Model"], text: str, *, named: bool, full: bool) -> tuple[str, str]:
    """The first and the last partition that are meant; all models must have them."""
    if full or not named:
        raise UsageError("--partition is of models that are named, and not of a run that makes everything anew.")
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
    if record is None and failure is not None:
        return {"model": name, "status": "failed", "error": failure}  # it never began
    if record is None:
        return {"model": name, "status": "skipped", "error": f"{name}: skipped, since a model that it reads failed."}
    detail = record.detail
    return {
        "model": name,
        "status": record.status,
        "action": record.mode,
        "reason": record.reason,
        "rows": detail.get("rows", {}),
        "schema": detail.get("schema", []),
        "warnings": detail.get("warnings", []),
        "checks": detail.get("checks", {}),
        "seconds": in_all(detail.get("seconds", {})),
        "error": failure or record.error,
    }


def in_all(seconds: Mapping[str, float]) -> float:
    """How long a run took: the step that holds the others is the longest."""
    return round(max(seconds.values(), default=0.0), 2)


def code_of(error: str | None) -> int:
    """The exit code of an error that the ledger has by its name."""
    kind = getattr(errors, (error or "").partition(":")[0], None)
    return kind.exit_code if isinstance(kind, type) and issubclass(kind, TidemarkError) else 1


def line_of(run: dict[str, Any]) -> str:
    """A run in a line that people read."""
    rows = ", ".join(f"{count:,} {what}" for what, count in run["rows"].items()) or "no rows"
    told = "".join(f"\n  {cell(words)}" for words in (*run["schema"], *run["warnings"]))
    checks = f", {sum(run['checks'].values())} of {len(run['checks'])} checks passed" if run["checks"] else ""
    return (
        f"{run['model']}: {run['status']} ({run['action']}, {run['reason']}): {rows}{checks}, {run['seconds']:.2f} s{told}"
    )


def model_check(names: Names = None, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Run the checks of models on what is published. Exit code 1 if a blocking one fails: a gate for CI."""
    loaded = load_config(config)
    models = opened(loaded)
    rows: list[dict[str, Any]] = []
    for model in load_project(loaded).selected(names or ()):
        blocking = {check.name: check.blocking for check in model.metadata.checks}
        with Progress(model.name):
            results = models.check(model.name) if blocking else ()
        rows += [{"model": model.name, **asdict(each), "blocking": blocking[each.name]} for each in results]
    if as_json:
        print_json(rows)
    else:
        table = [[row["model"], row["name"], word(row), row["summary"]] for row in rows]
        print_table("checks", ["model", "check", "verdict", "why"], table)
    if any(row["blocking"] and not row["passed"] for row in rows):
        raise typer.Exit(1)


def word(row: dict[str, Any]) -> str:
    return "well" if row["passed"] else "FAIL" if row["blocking"] else "warn"


# --- state -----------------------------------------------------------------------------------------------------------


def model_state(names: Names = None, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """How far models have got: what the last run left behind, and columns that can be restored."""
    from tidemark.models.state import ModelStateManager

    loaded = load_config(config)
    states = ModelStateManager(control_of(loaded))
    chosen = load_project(loaded).selected(names or ())
    rows = {model.name: states.get(model.name) for model in chosen}
    if as_json:
        print_json([{"model": name, "state": asdict(state) if state else None} for name, state in rows.items()])
        return
    for name, state in rows.items():
        if state is None:
            messages.print(f"{name}: no state; the next run makes it anew", highlight=False)
            continue
        facts = asdict(state) | {
            "snapshot": str(state.snapshot or ""),
            "columns": ", ".join(f"{column} {type_}" for column, type_ in state.columns.items()),
            "dropped": ", ".join(f"{each.name} (snapshot {each.snapshot})" for each in state.dropped),
        }
        print_facts(name, facts)


def model_history(
    name: ModelName,
    limit: Annotated[int, typer.Option(min=1, help="How many runs.")] = 20,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """The runs of a model, newest first: what each did, and why."""
    from tidemark.models.place import SYSTEM

    loaded = load_config(config)
    load_project(loaded).find(name)
    runs = control_of(loaded).runs.history(SYSTEM, name, limit=limit)
    rows = [{"run": run.run_id, "began": run.started_at, **shown(name, run)} for run in runs]
    if as_json:
        print_json(rows)
    elif rows:
        wanted = ("began", "status", "action", "reason", "rows", "schema", "error")
        print_table(name, wanted, [[flat(row[each]) for each in wanted] for row in rows])
    else:
        messages.print(f"{name} was never run", highlight=False)


def flat(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{count:,} {what}" for what, count in value.items())
    return "\n".join(value) if isinstance(value, list) else value


# --- columns ---------------------------------------------------------------------------------------------------------


def model_backfill(
    name: ModelName,
    columns: Annotated[list[str], typer.Argument(metavar="COLUMN…", help="Columns to fill in rows that are there.")],
    where: Annotated[str | None, typer.Option("--where", help="Only rows of the query that satisfy this condition.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Fill columns of rows that are in the table already from the query, by key: for columns that came later."""
    from spark_code.models.materialize import MaterializationHandler
    from spark_code.models.restore import backfill

    loaded = load_config(config)
    model = load_project(loaded).find(name)
    query = f"SELECT * FROM ({model.sql}\n) WHERE {where}" if where else model.sql
    with Progress(name):
        handler = MaterializationHandler(opened(loaded).opened)
        result = backfill(handler, model.name, query, model.metadata, columns)
    print_result(result, as_json=as_json)


def model_restore(
    name: ModelName,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="A column that was dropped.")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Bring a dropped column back with the values it had. `tidemark model state` lists what can be restored."""
    from spark_code.models.materialize import MaterializationHandler
    from spark_code.models.restore import restore

    loaded = load_config(config)
    model = load_project(loaded).find(name)
    with Progress(name):
        result = restore(MaterializationHandler(opened(loaded).opened), model.name, column, model.metadata)
    print_result(result, as_json=as_json)


def print_result(result: "ModelResult", *, as_json: bool) -> None:
    told = {
        "model": result.name,
        "status": result.status,
        "action": result.action,
        "reason": result.reason,
        "error": None,
        **result.told(),
        "seconds": in_all(result.seconds),
    }
    print_json(told) if as_json else console.print(line_of(told), highlight=False)
