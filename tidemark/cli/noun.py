"""What every noun has: `status`, `history`, `maintain`, and `run`, whose results look the same everywhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from tidemark.cli.completing import subject_names
from tidemark.cli.options import AsJson, ConfigFile, Full, Limit
from tidemark.cli.output import print_json, print_line, say
from tidemark.cli.tables import print_table, short
from tidemark.runs.system import System, register_system

if TYPE_CHECKING:
    from tidemark.config import Config
    from tidemark.control import ControlDatabase, RunRecord
    from tidemark.platform import Platform

    PlatformOf = Callable[[Config], Platform]

Show = Callable[["RunRecord"], None]
KEEP_RUNS = 50


def noun(app: typer.Typer, system: System, platform_of: "PlatformOf | None" = None) -> typer.Typer:
    """Adds the noun of a system, with the verbs that need nothing but the system. Returns it, for verbs of its own.

    `platform_of` opens what subjects of the system stand on; None: they need no Spark.
    """
    register_system(system)
    group = typer.Typer(help=system.summary, no_args_is_help=True)
    if system.run is not None:
        group.command("run")(run_command(system, platform_of or _without_spark))
    group.command("status")(status_command(system))
    group.command("history")(history_command(system))
    group.command("maintain")(maintain_command(system, platform_of or _without_spark))
    app.add_typer(group, name=system.noun)
    return group


def control_of(config: "Config") -> "ControlDatabase":
    from tidemark.control import ControlDatabase

    return ControlDatabase(config.control)


class HasRuns(Protocol):
    """Something that has runs in the ledger."""

    @property
    def address(self) -> str: ...

    @property
    def control(self) -> "ControlDatabase": ...


def find_run(subject: HasRuns, name: str) -> "RunRecord":
    """The run that somebody names: an id, the beginning of one, or latest, latest~1, …"""
    return subject.control.runs.find(subject.address, name)


@contextmanager
def observed(config: "Config") -> Iterator[None]:
    """JSON logs and lineage events, where they are requested, of the runs inside."""
    from tidemark import observe

    stop = observe.start(config)
    try:
        yield
    finally:
        stop()


# --- looking ---------------------------------------------------------------------------------------------------------


def status_command(system: System) -> Callable[..., None]:
    def status(
        names: Annotated[
            list[str] | None,
            typer.Argument(metavar=f"[{system.form}…]", help="Default: all.", autocompletion=subject_names(system)),
        ] = None,
        as_json: AsJson = False,
        config: ConfigFile = None,
    ) -> None:
        """How the subjects are doing. Exit code 1 if one is failed, overdue, stuck or broken."""
        from tidemark.cli.status import show_statuses
        from tidemark.config import load_config

        loaded = load_config(config)
        show_statuses(loaded, system.listed(loaded, names or ()), as_json=as_json)

    return status


def history_command(system: System) -> Callable[..., None]:
    def history(
        name: Annotated[str, typer.Argument(metavar=system.form, autocompletion=subject_names(system))],
        limit: Limit = 20,
        as_json: AsJson = False,
        config: ConfigFile = None,
    ) -> None:
        """The runs, newest first: what each did, and why."""
        from tidemark.config import load_config

        show_history(system, load_config(config), name, limit, as_json=as_json)

    return history


def show_history(system: System, config: "Config", name: str, limit: int, *, as_json: bool) -> None:
    from tidemark.runs.summary import run_summary

    address = system.address(name)
    records = control_of(config).runs.history(address, limit)
    if not records:
        # What is no longer configured may still have a history; a name that has neither is a mistake.
        system.chosen(config, [name])
    if as_json:
        print_json([run_summary(record) for record in records])
    elif records:
        print_history(records)
    else:
        say(f"{address} was never run")


def print_history(records: "Sequence[RunRecord]") -> None:
    ids = [record.run_id for record in records]
    rows = [
        [
            short(record.run_id, ids),
            record.status,
            record.mode,
            f"{record.started_at:%m-%d %H:%M}",
            took(record),
            why(record),
        ]
        for record in records
    ]
    print_table("", ["run", "status", "mode", "began", "s", "rows, reason or error"], rows)


def took(record: "RunRecord") -> str:
    return f"{(record.finished_at - record.started_at).total_seconds():.1f}" if record.finished_at else ""


def why(record: "RunRecord") -> str:
    if record.error:
        return record.error
    rows = ", ".join(f"{count:,} {what}" for what, count in record.detail.get("rows", {}).items() if count)
    words = record.detail.get("reason")
    reason = f"{record.reason or ''}: {words}" if words else record.reason or ""
    return f"{rows}; {reason}" if rows else reason


# --- running ---------------------------------------------------------------------------------------------------------


def run_command(system: System, platform_of: "PlatformOf") -> Callable[..., None]:
    def run(
        names: Annotated[list[str], typer.Argument(metavar=f"{system.form}…", autocompletion=subject_names(system))],
        full: Full = False,
        as_json: AsJson = False,
        config: ConfigFile = None,
    ) -> None:
        """Bring subjects up to date: read, verify, publish, move the mark."""
        from uuid import uuid4

        from tidemark.config import load_config

        loaded, steps = load_config(config), system.run
        assert steps is not None, "the noun has the verb only then"
        addresses = system.chosen(loaded, names)

        def one(name: str) -> "RunRecord":
            return steps(system.open(platform_of(loaded), name), str(uuid4()), full=full)

        run_each(system, loaded, names, addresses, one, as_json=as_json)

    return run


def run_each(
    system: System,
    config: "Config",
    names: Sequence[str],
    addresses: Sequence[str],
    one: "Callable[[str], RunRecord]",
    *,
    as_json: bool,
    show: Show | None = None,
) -> None:
    """Runs the subjects one after the other; of several, one that fails does not stop the others."""
    from tidemark.cli.running import one_by_one
    from tidemark.clock import SystemClock

    began = SystemClock().now()
    shown: Callable[[str, Any], None] | None = None if as_json else lambda _, record: (show or print_run)(record)
    with observed(config):
        done = one_by_one(addresses, lambda address: one(system.name(address)), shown)
    if as_json:
        runs = control_of(config).runs
        documents = []
        for address, outcome in done.outcomes.items():
            if isinstance(outcome, Exception):
                newest = next(iter(runs.history(address, 1)), None)
                begun = newest if newest is not None and newest.started_at >= began else None
                documents.append(failed(address, begun, f"{type(outcome).__name__}: {outcome}"))
            else:
                documents.append(failed(address, outcome, None))
        print_documents(system, names, documents)
    done.end()


def failed(address: str, record: "RunRecord | None", error: str | None) -> dict[str, Any]:
    """A run as programs get it; if it never began, that it failed and why."""
    from tidemark.runs.summary import no_run, run_summary

    return run_summary(record) if record is not None else no_run(address, "failed", error)


def print_documents(system: System, names: Sequence[str], documents: Sequence[dict[str, Any]]) -> None:
    """One object if one subject was requested by its name, else a list."""
    is_one = len(names) == len(documents) == 1 and documents[0]["subject"] == system.address(names[0])
    print_json(documents[0] if is_one else documents)


def print_run(record: "RunRecord") -> None:
    """A run in a line that people read."""
    print_line(line_of(record))


def line_of(record: "RunRecord") -> str:
    seconds = took(record)
    return f"{record.subject}: {record.status} ({record.mode}): {why(record)}" + (f", {seconds} s" if seconds else "")


# --- upkeep ----------------------------------------------------------------------------------------------------------


def _without_spark(config: "Config") -> "Platform":
    from tidemark.platform import Platform

    return Platform(config)


def maintain_command(system: System, platform_of: "PlatformOf") -> Callable[..., None]:
    def maintain(
        names: Annotated[
            list[str] | None,
            typer.Argument(metavar=f"[{system.form}…]", help="Default: all.", autocompletion=subject_names(system)),
        ] = None,
        keep_runs: Annotated[int, typer.Option(min=1, help="Runs that can still be read and rolled back to.")] = KEEP_RUNS,
        as_json: AsJson = False,
        config: ConfigFile = None,
    ) -> None:
        """Compact files, remove old snapshots and files that nothing refers to. Rows stay the same."""
        from tidemark.config import load_config

        loaded = load_config(config)
        addresses = system.chosen(loaded, names or ())

        def one(name: str) -> "RunRecord":
            from tidemark.runs.upkeep import keep_up

            subject = system.open(platform_of(loaded), name)
            return keep_up(subject, system.compactor(subject), keep_runs=keep_runs)

        if not names:
            from tidemark.platform import Platform
            from tidemark.runs.upkeep import sweep_store

            sweep_store(Platform(loaded))
        run_each(system, loaded, names or (), addresses, one, as_json=as_json, show=print_upkeep)

    return maintain


def print_upkeep(record: "RunRecord") -> None:
    print_run(record)
    for table, facts in record.detail.get("upkeep", {}).items():
        print_table(table, ["what", "how many"], facts.items())
    if record.detail.get("left alone"):
        print_line(f"left alone: {record.detail['left alone']}")
