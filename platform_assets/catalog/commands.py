"""`tidemark catalog`: the metadata catalogue at a shell."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_assets.opening import instance_of, platform_of, subject_of
from spark_code.catalog.system import CATALOG
from tidemark.cli.checks import print_checks
from tidemark.cli.completing import subject_names
from tidemark.cli.noun import find_run, noun, print_run, run_each
from tidemark.cli.options import AsJson, ConfigFile, Full, Reason, RunName
from tidemark.cli.output import print_json, print_line
from tidemark.cli.tables import print_facts, print_table
from tidemark.config import load_config
from tidemark.errors import StateError, UsageError

if TYPE_CHECKING:
    from spark_code.catalog.subject import CatalogSubject
    from tidemark.catalog.view import CatalogView
    from tidemark.control import RunRecord

ConnectionName = Annotated[
    str,
    typer.Argument(metavar="CONNECTION", help="A connection of the configuration.", autocompletion=subject_names(CATALOG)),
]
LABELS = ("CREATED", "UPDATED", "BACKFILL", "NO CHANGE", "REMOVED", "UNKNOWN")


def register(app: typer.Typer) -> None:
    catalog = noun(app, CATALOG, platform_of)
    for command in (run, plan, diff, check, rewind, reset, rollback, state, explain, marker):
        catalog.command()(command)


def opened(config: ConfigFile, name: str) -> "CatalogSubject":
    subject: CatalogSubject = subject_of(load_config(config), CATALOG, name)
    return subject


def looked_at(config: ConfigFile, name: str) -> "CatalogView":
    """For commands that only read what is published: without Spark."""
    from tidemark.catalog.view import CatalogView
    from tidemark.platform import Platform

    loaded = load_config(config)
    return CatalogView(Platform(loaded, only_reads=True), loaded.connection(name))


# --- running ---------------------------------------------------------------------------------------------------------


def run(
    connections: Annotated[
        list[str],
        typer.Argument(metavar="CONNECTION…", help="One or more connections.", autocompletion=subject_names(CATALOG)),
    ],
    full: Full = False,
    allow_removals: Annotated[
        bool, typer.Option("--allow-removals", help="Go on even if more tables are gone than the guard allows.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Bring connections up to date: list, read what changed, stage, check, publish, move the marker."""
    loaded = load_config(config)
    addresses = CATALOG.chosen(loaded, connections)
    from platform_assets.catalog.launch import launch

    with instance_of(loaded) as instance:

        def one(name: str) -> "RunRecord":
            return launch(loaded, instance, name, full=full, allow_removals=allow_removals)

        run_each(CATALOG, loaded, connections, addresses, one, as_json=as_json, show=print_labels)


def print_labels(record: "RunRecord") -> None:
    """A run with its tables by label, which is what people look for."""
    print_run(record)
    labels = record.detail.get("labels", {})
    if labels:
        print_table("tables", [*LABELS], [[labels.get(label, 0) for label in LABELS]])
    vanished = record.detail.get("vanished", 0)
    if vanished:
        words = (
            "1 table vanished while it was read" if vanished == 1 else f"{vanished:,} tables vanished while they were read"
        )
        print_line(f"{words}: UNKNOWN if known before, else left out. The next run settles it.", style="yellow")
    if record.detail.get("unlisted"):
        unlisted = ", ".join(record.detail["unlisted"])
        print_line(f"not listed, their tables are carried as UNKNOWN: {unlisted}", style="yellow")


def plan(connection: ConnectionName, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """What a run would read and why. Reads the source's listing, no columns; writes nothing."""
    subject = opened(config, connection)
    from spark_code.catalog.explain import changing_units

    planned, rows = changing_units(subject)
    if as_json:
        facts = {"subject": subject.address, "mode": planned.mode, "reason": planned.reason, "labels": planned.counts}
        print_json({**facts, "units": rows})
        return
    print_line(f"{subject.address}: {planned.mode} run ({planned.reason})", style="bold")
    print_table("tables", [*LABELS], [[planned.counts[label] for label in LABELS]])
    if rows:
        print_table(
            "what would change",
            ["name", "kind", "label"],
            [[shortened(row["qualified_name"]), row["kind"], row["label"]] for row in rows],
        )


def explain(
    connection: ConnectionName,
    table: Annotated[str, typer.Argument(help="schema.table or a qualified name.")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Why a table is read or not: its signal before and now, its label, the run that last read it."""
    subject = opened(config, connection)
    from spark_code.catalog.explain import explain_table

    facts = explain_table(subject, table)
    print_json(facts) if as_json else print_facts(f"{subject.address}: {table}", facts)


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
    subject = looked_at(config, connection)
    snapshot, run_id = state_of(subject, as_of)
    for line in entities(subject.reader, subject.layout.table, snapshot, run_id, Kind(kind) if kind else None):
        sys.stdout.write(line + "\n")


def state_of(subject: "CatalogView", run_name: str | None) -> tuple[int, str]:
    """Snapshot and run id of a state: the published one, or the one that a run left."""
    if run_name is None:
        published = subject.published()
        if published.snapshot is None:
            raise StateError(f"{subject.address}: nothing is published yet. `tidemark catalog run {subject.name}`.")
        return published.snapshot, published.labels_of
    record = find_run(subject, run_name)
    if record.snapshot is None:
        raise UsageError(f"{subject.address}: run {record.run_id} is {record.status} and left no state.")
    return record.snapshot, str(record.detail.get("rolled back to", record.run_id))


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
    subject = looked_at(config, connection)
    reader, table = subject.reader, subject.layout.table
    if staged:
        record = find_run(subject, staged)
        stage = reader.staged(table, record.run_id)
        if stage is None:
            raise StateError(f"{subject.address}: run {record.run_id} ({record.status}) has nothing staged.")
        before, now = record.base_snapshot, stage.snapshot_id
    else:
        before, now = state_of(subject, run_a)[0], state_of(subject, run_b)[0]
    changes = changes_between(reader, table, before, now)
    if as_json:
        print_json([asdict(change) for change in changes])
        return
    rows = [[shortened(change.name), change.kind, change.what, described(change.attributes)] for change in changes]
    print_table(f"{subject.address}: {len(changes)} differences", ["name", "kind", "change", "attributes"], rows)


def shortened(qualified_name: str) -> str:
    """A name without tenant, app and connection, which are the same in every row."""
    return qualified_name.split("/", 3)[3]


def described(attributes: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name}: {before} → {now}" for name, (before, now) in attributes.items())


def check(
    connection: ConnectionName,
    full: Annotated[bool, typer.Option("--full", help="Compare every row, not only what the last run touched.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """All checks against the published state. Exit code 1 if one fails: a gate for CI."""
    subject = opened(config, connection)
    from spark_code.catalog.audit import audit

    print_checks([{"subject": subject.address, **asdict(each)} for each in audit(subject, whole=full)], as_json=as_json)


# --- going back ------------------------------------------------------------------------------------------------------


def rollback(connection: ConnectionName, run_name: RunName, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Make the state that a run left the published one again: first the marker, then the state."""
    subject = opened(config, connection)
    from spark_code.catalog.rollback import roll_back

    found = find_run(subject, run_name)
    run_each(
        CATALOG,
        subject.platform.config,
        [connection],
        [subject.address],
        lambda _: roll_back(subject, found),
        as_json=as_json,
    )


def rewind(
    connection: ConnectionName,
    to: Annotated[str, typer.Option("--to", help="UTC ISO 8601, as in 2026-01-31T12:00:00Z. Never later than now.")],
    reason: Reason = "rewound by hand",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Move the marker back, so that the next run reads from there."""
    from tidemark.catalog.marker import parse_moment
    from tidemark.errors import MarkerCorrupt

    try:
        moment = parse_moment(to)
    except MarkerCorrupt:
        raise UsageError("--to must be UTC ISO 8601, as in 2026-01-31T12:00:00Z.") from None
    subject = opened(config, connection)
    from spark_code.catalog.rollback import rewind_marker

    def one(_name: str) -> "RunRecord":
        return rewind_marker(subject, moment, reason)

    run_each(CATALOG, subject.platform.config, [connection], [subject.address], one, as_json=as_json)


def reset(connection: ConnectionName, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Take the marker away, so that the next run reads everything. The published state stays."""
    if not reason.strip():
        raise UsageError(f"reset {connection}: say why with --reason. It stays in the history of the mark.")
    subject = opened(config, connection)
    from spark_code.catalog.reset import reset_marker

    def one(_name: str) -> "RunRecord":
        return reset_marker(subject, reason)

    run_each(CATALOG, subject.platform.config, [connection], [subject.address], one, as_json=as_json)


def marker(connection: ConnectionName, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """marker.txt, what is recorded for the published state, and who moved it."""
    subject = looked_at(config, connection)
    found, published = subject.marker.read(), subject.published()
    marks = subject.control.marks
    moves = [asdict(row) for row in marks.audit(subject.address)]
    facts = {
        "marker": found.moment,
        "corrupt": found.corrupt,
        "recorded": published.recorded_marker,
        "published run": published.run_id,
    }
    if as_json:
        print_json({"subject": subject.address, **facts, "moves": moves})
        return
    print_facts(f"{subject.address}: {subject.layout.marker}", facts)
    rows = [[move["at"], move["actor"], move["kind"], move["reason"]] for move in moves[:20]]
    print_table("moves", ["when", "who", "what", "reason"], rows)
