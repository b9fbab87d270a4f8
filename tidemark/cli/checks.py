"""Verdicts of checks at a shell."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from tidemark.cli.output import print_json
from tidemark.cli.tables import print_table


def print_checks(checks: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Verdicts; ends the command with exit code 1 if one failed, unless it is marked as not blocking."""
    bad = [each for each in checks if not each["passed"]]
    if as_json:
        print_json(checks)
    else:
        rows = [[each["name"], verdict(each), each["summary"]] for each in checks]
        print_table(str(checks[0]["subject"]) if checks else "checks", ["check", "verdict", "why"], rows)
    if any(each.get("blocking", True) for each in bad):
        raise typer.Exit(1)


def verdict(check: Mapping[str, Any]) -> str:
    return "ok" if check["passed"] else "FAILED" if check.get("blocking", True) else "warning"
