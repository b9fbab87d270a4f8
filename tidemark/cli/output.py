"""How results look: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console()
messages = Console(stderr=True)


def print_json(value: Any) -> None:
    """JSON on standard output, and nothing else there."""
    sys.stdout.write(json.dumps(value, indent=2, default=_plain, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table in which numbers are on the right."""
    rows = list(rows)
    table = Table(title=title, title_justify="left", header_style="bold", title_style="bold")
    for index, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], NUMBERS) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console.print(table)


NUMBERS = (int, float)


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return str(value).replace("[", "\\[")


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    print_table(title, ["what", "now"], facts.items())
