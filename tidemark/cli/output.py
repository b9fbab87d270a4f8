"""What is printed: sentences for people, JSON for programs."""

import json
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any, TextIO

from rich.console import Console

from tidemark.terminal import standard_error

console = Console()


STYLES = {"error": "red", "warning": "yellow"}


def say(text: str, level: str = "info") -> None:
    """A sentence on standard error: a line of JSON where logs are for programs."""
    from tidemark.observe import logs_json

    if not logs_json():
        print_line(text, style=STYLES.get(level), on=console_on(standard_error()))
        return
    from tidemark.observe.json_log import write_message

    write_message(level, text)


@lru_cache(maxsize=1)
def console_on(stream: TextIO) -> Console:
    """One console for a stream: what is printed while something moves on it appears above that."""
    return Console(file=stream)


def print_line(text: str, style: str | None = None, on: Console | None = None) -> None:
    """A sentence. A terminal breaks it between words; in a file it stays one line."""
    on = on or console
    on.print(text, style=style, markup=False, highlight=False, soft_wrap=not on.is_terminal)


class Printed:
    """Whether a program that waits for a document has got it."""

    json = False


def print_json(value: Any) -> None:
    """JSON on standard output, and nothing else there."""
    Printed.json = True
    sys.stdout.write(json.dumps(value, indent=2, default=_plain, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)
