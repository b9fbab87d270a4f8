"""`tidemark status`, and `status` of every noun: how subjects are doing, without Spark, Dagster or the lake."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tidemark.cli.completing import subject_addresses
from tidemark.cli.options import AsJson, ConfigFile
from tidemark.cli.output import print_json, print_line, say
from tidemark.cli.tables import ago, print_table

if TYPE_CHECKING:
    from tidemark.config import Config
    from tidemark.runs.system import Configured
    from tidemark.status import SubjectStatus

ERROR_WIDTH = 200  # of an error that is shown in short


def status(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ADDRESS…]",
            help="Such as catalog/shop, or stream/default. Default: all.",
            autocompletion=subject_addresses(),
        ),
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """How every subject is doing. Exit code 1 if one is failed, overdue, stuck or broken."""
    from tidemark.config import load_config
    from tidemark.runs.system import configured_subjects

    loaded = load_config(config)
    show_statuses(loaded, chosen(configured_subjects(loaded), addresses or ()), as_json=as_json)


def chosen(known: "Sequence[Configured]", addresses: Sequence[str]) -> "list[Configured]":
    """The subjects of these addresses; a part of an address up to a slash is all subjects below it."""
    from tidemark.config.problems import did_you_mean
    from tidemark.errors import UsageError

    found = []
    for address in addresses:
        wanted = address.rstrip("/")
        those = [each for each in known if _means(wanted, each)]
        if not those:
            listed = [each.address for each in known]
            raise UsageError(f"no subject '{address}'.{did_you_mean(address, listed)} `tidemark status` lists them.")
        found += [each for each in those if each not in found]
    return found if addresses else list(known)


def _means(wanted: str, subject: "Configured") -> bool:
    below = subject.address.startswith(f"{wanted}/")
    return below or subject.address == wanted or (bool(subject.broken) and subject.covers(wanted))


def show_statuses(config: "Config", subjects: "Sequence[Configured]", *, as_json: bool) -> None:
    from tidemark.clock import SystemClock
    from tidemark.control import ControlDatabase
    from tidemark.status import BAD, statuses

    now = SystemClock().now()
    control = ControlDatabase(config.control)
    found = statuses(control, subjects, config.tenants, now)
    if as_json:
        print_json([as_document(each) for each in found])
    elif found:
        print_statuses(found, now)
        if not control.exists:
            say("no runs yet")
    else:
        say("nothing is configured yet: add `connections:`, `connectors:` or `models:`")
    if any(each.state in BAD for each in found):
        raise typer.Exit(1)


def as_document(each: "SubjectStatus") -> dict[str, Any]:
    run = each.run
    last = None
    if run is not None:
        fields = ("run_id", "status", "mode", "reason", "started_at", "finished_at")
        last = {name: getattr(run, name) for name in fields}
    return {
        "subject": each.subject,
        "state": each.state,
        "last_run": last,
        "marked_at": each.marked_at,
        "schedule": each.schedule,
        "next_due": each.next_due,
        "due_since": each.due_since,
        "error": each.error,
        "findings": [finding.to_json() for finding in each.findings],
    }


COLOURS = {"ok": "green", "running": "blue", "new": "dim"}


def print_statuses(found: "Sequence[SubjectStatus]", now: datetime) -> None:
    rows = []
    for each in found:
        run = each.run
        began = ago(run.finished_at or run.started_at, now) if run else ""
        due = ago(now, each.next_due) if each.next_due else ""
        state = Text(each.state, style=COLOURS.get(each.state, "red"))
        rows.append([each.subject, state, began, ago(each.marked_at, now), due])
    print_table("", ["subject", "state", "ran", "mark", "due in"], rows)
    for each in found:
        for error in errors_of(each):
            print_line(f"{each.subject}: {error}", style="red")


def errors_of(each: "SubjectStatus") -> list[str]:
    """Why it needs somebody. Findings are shown in full: their end says what to do."""
    if each.findings:
        return [str(finding) for finding in each.findings]
    error = each.error or ""
    return [error if len(error) <= ERROR_WIDTH else error[: ERROR_WIDTH - 1] + "…"] if error else []
