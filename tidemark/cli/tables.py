"""Tables for people: as wide as the terminal, and no name is broken in its middle."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from textwrap import wrap
from typing import Any

from rich.table import Table
from rich.text import Text

from tidemark.cli.output import console, print_line

GAP = 2
# A sentence is of so many words or more, and may break those that are longer, such as a path in an error.
SENTENCE, LONGEST_WORD = 4, 30
SHORT = 19  # such as 2026-03-01 10:00:00
SHORT_ID = 8
RUN_IDS = ("run_id", "published run", "last read by run")
NUMBERS = (int, float)
between_words = partial(wrap, break_long_words=False, break_on_hyphens=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows under their columns, numbers on the right; a row below the other where names are too long for that."""
    rows = [list(row) for row in rows]
    cells = [[as_text(value) for value in row] for row in rows]
    if title:
        print_line(title, style="bold")
    widths = fitting([[Text(name), *column] for name, column in zip(columns, zip(*cells, strict=True), strict=False)])
    if widths is None:
        print_blocks(columns, cells)
        return
    table = Table(box=None, header_style="bold", padding=(0, GAP, 0, 0), pad_edge=False)
    for index, name in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], NUMBERS) for row in rows)
        width = widths[index] if widths else None
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def fitting(columns: Sequence[Sequence[Text]]) -> list[int] | None:
    """How wide each column is, so that all fit next to each other; None: they cannot without breaking a name."""
    widths = [max(longest_line(cell) for cell in column) for column in columns]
    least = [max(longest_word(cell) for cell in column) for column in columns]
    room = console.width - GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        widest = max((index for index in range(len(widths)) if widths[index] > least[index]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def longest_line(cell: Text) -> int:
    return max((line.cell_len for line in cell.split("\n")), default=0)


def longest_word(cell: Text) -> int:
    """As wide as a column must be for this cell: an age or a date is not broken at all, a name only in a sentence."""
    lines = cell.plain.splitlines()
    longest = max((len(word) for line in lines for word in line.split()), default=0)
    if any(len(line.split()) >= SENTENCE for line in lines):
        return min(longest, LONGEST_WORD)
    return max(longest, longest_line(cell)) if longest_line(cell) <= SHORT else longest


def print_blocks(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """Each row in lines of its own: what it is about, and below that what is known of it."""
    for first, *rest in rows:
        print_line(first.plain, style="bold")
        for name, cell in zip(columns[1:], rest, strict=True):
            for number, line in enumerate(cell.plain.splitlines()):
                before = "    " if number else f"  {name}: "
                # Between words: what is longer than the terminal is wide is a name, and stays in one piece.
                broken = between_words(before + line, console.width, subsequent_indent="    ")
                console.print("\n".join(broken), markup=False, highlight=False, soft_wrap=True)


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    """What is known of one thing."""
    shown = {name: short(value) if name in RUN_IDS and value else value for name, value in facts.items()}
    print_table(title, ["what", "now"], shown.items())


def as_text(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    if value is None:
        return Text()
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, float):
        return Text(f"{value:.2f}")
    return Text(value.strftime("%Y-%m-%d %H:%M:%S") if isinstance(value, datetime) else str(value))


def short(run_id: str, among: Iterable[str] = ()) -> str:
    """The beginning of a run's id that no other of these has; commands take it."""
    others = {each for each in among if each != run_id}
    size = SHORT_ID
    while size < len(run_id) and any(each.startswith(run_id[:size]) for each in others):
        size += 1
    return run_id[:size]


def ago(before: datetime | None, now: datetime | None) -> str:
    """The time between, in one unit: 40 s, 12 min, 3 h, 9 days."""
    if before is None or now is None:
        return ""
    seconds = max(int((now - before).total_seconds()), 0)
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} days"
