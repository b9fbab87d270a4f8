"""`tidemark stream`: streams of connectors at a shell."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from platform_assets.connectors import trying
from platform_assets.connectors.looking import late, list_streams, show_state
from platform_assets.connectors.naming import StreamName, opened
from platform_assets.opening import instance_of, platform_of
from spark_code.connectors.system import STREAM, parts_of
from tidemark.cli.checks import print_checks
from tidemark.cli.completing import subject_names
from tidemark.cli.noun import find_run, noun, run_each, show_history
from tidemark.cli.options import AsJson, ConfigFile, Full, Limit, Reason, RunName
from tidemark.cli.output import print_json, say
from tidemark.cli.tables import print_facts, print_table
from tidemark.config import load_config
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.control import RunRecord


def register(app: typer.Typer) -> None:
    stream = noun(app, STREAM, platform_of)
    for name, command in (
        ("run", run), ("plan", plan), ("history", history), ("diff", diff), ("check", check), ("rewind", rewind),
        ("reset", reset), ("rollback", rollback), ("list", list_streams), ("show", show_state), ("late", late),
    ):  # fmt: skip
        stream.command(name)(command)
    trying.register(app)


# --- running ---------------------------------------------------------------------------------------------------------


def run(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="TENANT/CONNECTOR[/STREAM]…",
            help="Connectors, or streams of them.",
            autocompletion=subject_names(STREAM),
        ),
    ],
    full: Full = False,
    allow_deletions: Annotated[
        bool, typer.Option("--allow-deletions", help="Delete even if more records are gone than the guard allows.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Bring streams up to date: read what is new, land it in Bronze, check, publish, move the state."""
    loaded = load_config(config)
    addresses = STREAM.chosen(loaded, names)
    from platform_assets.connectors.launch import launch

    with instance_of(loaded) as instance:

        def one(name: str) -> "RunRecord":
            tenant, connector, stream = name.split("/", 2)
            return launch(instance, tenant, connector, stream, full=full, allow_deletions=allow_deletions)

        run_each(STREAM, loaded, names, addresses, one, as_json=as_json)


def plan(name: StreamName, full: Full = False, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """What a run would read: its window, its slices, how many records. Nothing is written."""
    subject = opened(config, name)
    from spark_code.connectors.preview import previewed

    try:
        planned = previewed(subject, full=full)
    finally:
        subject.close()
    facts = {"subject": subject.address, **asdict(planned)}
    print_json(facts) if as_json else print_facts(subject.address, asdict(planned))


# --- looking ---------------------------------------------------------------------------------------------------------


def history(
    name: StreamName,
    moves: Annotated[bool, typer.Option("--moves", help="The moves of the state instead: who, when, why.")] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """The runs, newest first; or every move of the state."""
    loaded = load_config(config)
    if not moves:
        show_history(STREAM, loaded, name, limit, as_json=as_json)
        return
    from platform_assets.connectors.naming import address_of, marks_to_look_at

    tenant = parts_of(name, 3, 3)[0]
    found = [asdict(move) for move in marks_to_look_at(loaded, tenant).audit(address_of(name))][:limit]
    if as_json:
        print_json(found)
    elif found:
        wanted = ("at", "actor", "kind", "from_version", "to_version", "reason")
        print_table(
            "",
            ["when", "who", "what", "from", "to", "reason"],
            [[f"{move['at']:%m-%d %H:%M}", *(move[each] for each in wanted[1:])] for move in found],
        )
    else:
        say(f"{name}: its state never moved")


def diff(
    name: StreamName,
    run_a: Annotated[str, typer.Argument(metavar="RUN_A")],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """How many versions, keys and deletions Bronze got between two runs (an id, or latest, latest~1, …)."""
    subject = opened(config, name)
    from spark_code.connectors.audit import landed_between

    facts = {"subject": subject.address, **landed_between(subject, find_run(subject, run_a), find_run(subject, run_b))}
    print_json(facts) if as_json else print_facts(subject.address, facts)


def check(name: StreamName, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """The checks that can be asked of published Bronze. Exit code 1 if one fails: a gate for CI."""
    subject = opened(config, name)
    from spark_code.connectors.audit import audit

    print_checks([{"subject": subject.address, **asdict(each)} for each in audit(subject)], as_json=as_json)


# --- going back ------------------------------------------------------------------------------------------------------


def rewind(
    name: StreamName,
    to: Annotated[str | None, typer.Option("--to", help="A value of the cursor.")] = None,
    version: Annotated[int | None, typer.Option("--version", help="A version of the stream's history.")] = None,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many records would be read again.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Move the state back, so that the next run reads on from there. Bronze takes nothing twice."""
    if (to is None) == (version is None):
        raise UsageError(f"rewind {name} either --to a value of its cursor, or to a --version of its history.")
    from platform_assets.connectors.moving import rewound

    facts = rewound(config, name, to, version, reason, dry_run=dry_run)
    print_json(facts) if as_json else print_facts(name, facts)


def reset(name: StreamName, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Take the state away, so that the next run reads everything."""
    from platform_assets.connectors.moving import taken_away

    facts = taken_away(config, name, reason)
    print_json(facts) if as_json else print_facts(name, facts)


def rollback(
    name: StreamName, run_name: RunName, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None
) -> None:
    """Bring Bronze back to what a run left: first the state, then the table. What came later is read again."""
    subject = opened(config, name)
    from spark_code.connectors.rollback import roll_back_stream

    found = find_run(subject, run_name)

    def one(_name: str) -> "RunRecord":
        return roll_back_stream(subject, found, reason or f"rollback to run {found.run_id}")

    run_each(STREAM, subject.platform.config, [name], [subject.address], one, as_json=as_json)
