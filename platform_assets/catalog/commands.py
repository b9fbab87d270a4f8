"""`tidemark run|plan|explain|state|history|diff|rollback|check|marker`: the catalogue at a shell."""

import sys
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.cli.app import AsJson, ConfigFile
from tidemark.cli.output import console, print_facts, print_json, print_table
from tidemark.cli.running import one_by_one
from tidemark.config import load_config
from tidemark.errors import StateError, UsageError

if TYPE_CHECKING:
    from tidemark.control import RunRecord

ConnectionName = Annotated[str, typer.Argument(metavar="CONNECTION", help="A connection of the configuration.")]
LABELS = ("CREATED", "UPDATED", "BACKFILL", "NO CHANGE", "REMOVED", "UNKNOWN")


def register(app: typer.Typer) -> None:
    for command in (run, plan, explain, state, history, diff, rollback, check):
        app.command()(command)
    marker = typer.Typer(help="The marker of a connection.", no_args_is_help=True)
    marker.command("show")(marker_show)
    marker.command("rewind")(marker_rewind)
    app.add_typer(marker, name="marker")


def open_subject(config: ConfigFile, connection: str) -> Any:
    """The connection with its state. Imported here: a wrong name should not wait for Spark's modules."""
    loaded = load_config(config)
    settings = loaded.connection(connection)
    from spark_code.catalog.subject import CatalogSubject
    from spark_code.platform import Platform

    return CatalogSubject(Platform(loaded), settings)


def find_run(subject: Any, name: str) -> "RunRecord":
    found: RunRecord = subject.control.runs.find("catalog", subject.name, name)
    return found


# --- running ---------------------------------------------------------------------------------------------------------


def run(
    connections: Annotated[list[str], typer.Argument(metavar="CONNECTION…", help="One or more connections.")],
    full: Annotated[bool, typer.Option("--full", help="Read everything, whatever the marker says.")] = False,
    allow_removals: Annotated[
        bool, typer.Option("--allow-removals", help="Go on even if more tables went than the guard allows.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Bring connections up to date: list, read what changed, stage, check, publish, move the marker."""
    loaded = load_config(config)
    for name in connections:
        loaded.connection(name)
    from platform_assets.catalog.launch import launch
    from platform_assets.instance import open_instance

    with open_instance(loaded) as instance:
        done = one_by_one(
            connections,
            lambda name: launch(loaded, instance, name, full=full, allow_removals=allow_removals),
            None if as_json else print_run,
        )
    if as_json:
        shown = [shown_run(record) for record in done.results]
        print_json(shown if len(connections) > 1 else shown[0])
    done.end()


def shown_run(record: "RunRecord") -> dict[str, Any]:
    """A run as programs get it."""
    detail = record.detail
    return {
        "run_id": record.run_id,
        "connection": detail.get("connection"),
        "status": record.status,
        "mode": record.mode,
        "reason": record.reason,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "marker": record.marker,
        "snapshot": record.snapshot,
        "labels": detail.get("labels", {}),
        "entities": detail.get("entities", {}),
        "columns_read": detail.get("columns read"),
        "columns_carried": detail.get("columns carried"),
        "unlisted_schemas": detail.get("unlisted", {}),
        "seconds": detail.get("seconds", {}),
        "error": record.error,
    }


def print_run(name: str, record: "RunRecord") -> None:
    detail, labels = record.detail, record.detail.get("labels", {})
    console.print(
        f"\n[bold]{name}[/]: {record.status}, {record.mode} run ({record.reason}), run {record.run_id}", highlight=False
    )
    print_table("tables", [*LABELS], [[labels.get(label, 0) for label in LABELS]])
    print_table(
        "columns",
        ["read", "carried", "in the state"],
        [[detail.get("columns read"), detail.get("columns carried"), detail.get("entities", {}).get("column")]],
    )
    seconds = detail.get("seconds", {})
    print_table("seconds", [*seconds, "all"], [[*seconds.values(), sum(seconds.values())]])
    if detail.get("unlisted"):
        console.print(f"[yellow]not listed (their tables are carried as UNKNOWN): {', '.join(detail['unlisted'])}[/]")


def plan(connection: ConnectionName, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """What a run would read and why. Reads the source's listing, no columns; writes nothing."""
    subject = open_subject(config, connection)
    from spark_code.catalog.run import plan_run

    planned, units = plan_run(subject, "plan")
    rows = [row for row in units.select(["kind", "qualified_name", "label"]).to_pylist() if row["label"] != "NO CHANGE"]
    rows.sort(key=lambda row: row["qualified_name"])
    if as_json:
        print_json({"mode": planned.mode, "reason": planned.reason, "labels": planned.counts, "units": rows})
        return
    console.print(f"[bold]{connection}[/]: {planned.mode} run ({planned.reason})", highlight=False)
    print_table("tables", [*LABELS], [[planned.counts[label] for label in LABELS]])
    if rows:
        print_table(
            "what would change", ["name", "what", "label"], [[r["qualified_name"], r["kind"], r["label"]] for r in rows]
        )


def explain(
    connection: ConnectionName,
    table: Annotated[str, typer.Argument(help="schema.table or a qualified name.")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Why a table is read or not: its signal before and now, its label, the run that last read it."""
    subject = open_subject(config, connection)
    from spark_code.catalog.explain import explain_table

    facts = explain_table(subject, table)
    if as_json:
        print_json(facts)
    else:
        print_facts(f"{connection}: {table}", facts)


# --- reading ---------------------------------------------------------------------------------------------------------


def state(
    connection: ConnectionName,
    kind: Annotated[str | None, typer.Option(help="database, schema, table or column.")] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="RUN", help="The state that this run left.")] = None,
    config: ConfigFile = None,
) -> None:
    """The published state: one JSON entity a line, sorted by qualified name."""
    from tidemark.catalog.rows import Kind
    from tidemark.catalog.states import entities

    if kind is not None and kind not in list(Kind):
        raise UsageError(f"no kind '{kind}'. Allowed: {', '.join(Kind)}.")
    subject = open_subject(config, connection)
    snapshot, run_id = state_of(subject, as_of)
    for line in entities(subject.lake.reader, subject.layout.table, snapshot, run_id, Kind(kind) if kind else None):
        sys.stdout.write(line + "\n")


def state_of(subject: Any, run_name: str | None) -> tuple[int, str]:
    """Snapshot and run id of a state: the published one, or the one that a run left."""
    if run_name is None:
        published = subject.published()
        if published.snapshot is None:
            raise StateError(
                f"{subject.connection.name}: nothing is published yet. `tidemark run {subject.connection.name}`."
            )
        return published.snapshot, published.labels_of
    record = find_run(subject, run_name)
    if record.snapshot is None:
        raise UsageError(f"{subject.connection.name}: run {record.run_id} is {record.status} and left no state.")
    return record.snapshot, record.run_id


def history(
    connection: ConnectionName,
    limit: Annotated[int, typer.Option(help="How many runs, newest first.")] = 20,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """The runs of a connection, newest first."""
    subject = open_subject(config, connection)
    records = subject.control.runs.history("catalog", subject.name, limit)
    if as_json:
        print_json([shown_run(record) for record in records])
        return
    rows = []
    for record in records:
        labels = record.detail.get("labels", {})
        changed = sum(labels.get(label, 0) for label in ("CREATED", "UPDATED", "BACKFILL"))
        rows.append(
            [
                record.run_id,
                record.status,
                record.mode,
                record.reason,
                record.started_at,
                changed,
                labels.get("REMOVED", 0),
                record.error,
            ]
        )
    print_table(connection, ["run", "status", "mode", "reason", "started", "fresh", "removed", "error"], rows)


def diff(
    connection: ConnectionName,
    run_a: Annotated[str | None, typer.Argument(metavar="RUN_A")] = None,
    run_b: Annotated[str | None, typer.Argument(metavar="RUN_B")] = None,
    staged: Annotated[str | None, typer.Option(metavar="RUN", help="What a run staged against what is published.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """What differs between the states that two runs left (an id, the beginning of one, or latest, latest~1, …)."""
    from tidemark.catalog.states import changes_between

    if bool(staged) == bool(run_a and run_b):
        raise UsageError("give two runs, or --staged RUN.")
    subject = open_subject(config, connection)
    reader, table = subject.lake.reader, subject.layout.table
    if staged:
        record = find_run(subject, staged)
        stage = reader.staged(table, record.run_id)
        if stage is None:
            raise StateError(f"{connection}: run {record.run_id} ({record.status}) has nothing staged.")
        before, now = record.base_snapshot, stage.snapshot_id
    else:
        before, now = state_of(subject, run_a)[0], state_of(subject, run_b)[0]
    changes = changes_between(reader, table, before, now)
    if as_json:
        print_json([asdict(change) for change in changes])
        return
    rows = [[shortened(change.name), change.kind, change.what, described(change.attributes)] for change in changes]
    print_table(f"{connection}: {len(changes)} differences", ["name", "kind", "change", "attributes"], rows)


def shortened(qualified_name: str) -> str:
    """A name without tenant, app and connection, which are the same in every row."""
    return qualified_name.split("/", 3)[3]


def described(attributes: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name}: {before} → {now}" for name, (before, now) in attributes.items())


def rollback(
    connection: ConnectionName,
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="The run whose state is wanted back.")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Make the state that a run left the published one again: first the marker, then the state."""
    subject = open_subject(config, connection)
    from spark_code.catalog.rollback import roll_back

    record = roll_back(subject, find_run(subject, run_name))
    if as_json:
        print_json(shown_run(record))
    else:
        console.print(f"[bold]{connection}[/]: {record.reason}", highlight=False)


def check(
    connection: ConnectionName,
    full: Annotated[bool, typer.Option("--full", help="Compare every row, not only what the last run touched.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """All checks against the published state. Exit code 1 if one fails: a gate for CI."""
    subject = open_subject(config, connection)
    from spark_code.catalog.audit import audit

    results = audit(subject, whole=full)
    if as_json:
        print_json([asdict(result) for result in results])
    else:
        rows = [[result.name, "passed" if result.passed else "FAILED", result.summary] for result in results]
        print_table(connection, ["name", "status", "why"], rows)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


# --- the marker ------------------------------------------------------------------------------------------------------


def marker_show(connection: ConnectionName, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """marker.txt, what is recorded for the published state, and who moved it."""
    subject = open_subject(config, connection)
    found, published = subject.marker.read(), subject.published()
    moves = [asdict(row) for row in subject.control.marks.audit(subject.mark)]
    facts = {
        "marker": found.moment,
        "corrupt": found.corrupt,
        "recorded": published.recorded_marker,
        "published run": published.run_id,
    }
    if as_json:
        print_json({**facts, "moves": moves})
        return
    print_facts(f"{connection}: {subject.layout.marker}", facts)
    print_table(
        "moves",
        ["when", "name", "reason", "marker"],
        [[m["at"], m["actor"], m["reason"], m["value"]] for m in moves[:20]],
    )


def marker_rewind(
    connection: ConnectionName,
    to: Annotated[str, typer.Option("--to", help="UTC ISO 8601, as in 2026-01-31T12:00:00Z. Never later than now.")],
    config: ConfigFile = None,
) -> None:
    """Move the marker back, with an audit row."""
    from tidemark.catalog.marker import parse_marker
    from tidemark.errors import MarkerCorrupt

    try:
        moment: datetime = parse_marker(to)
    except MarkerCorrupt:
        raise UsageError("--to must be UTC ISO 8601, as in 2026-01-31T12:00:00Z.") from None
    subject = open_subject(config, connection)
    from spark_code.catalog.rollback import rewind_marker

    rewind_marker(subject, moment)
    console.print(f"[bold]{connection}[/]: marker rewound", highlight=False)
