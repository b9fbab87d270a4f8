"""What each policy must make of each change, written down from the specification and not from the code.

`tests/models/test_schema_matrix.py` runs every cell; `python -m tests.models.changes` writes docs/schema-changes.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

POLICIES = (
    "fail", "ignore", "append_new_columns", "sync_all_columns", "full_refresh", "full_incremental_refresh", "recreate_empty",
)  # fmt: skip
STRATEGIES = ("append", "merge", "delete_insert")
DOCUMENT = Path(__file__).parents[2] / "docs" / "schema-changes.md"

Row = dict[str, Any]
Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Refused:
    """The run stops before anything is written; the message has these words."""

    words: str


@dataclass(frozen=True)
class Stored:
    """The columns afterwards, with their types, beside `id` and `at`."""

    columns: Mapping[str, str]
    told: str
    # Column afterwards → column before, where a name changed.
    called: Mapping[str, str] = field(default_factory=dict)
    # How stored and new values look in a column, where they are not as they were.
    old: Mapping[str, Convert] = field(default_factory=dict)
    new: Mapping[str, Convert] = field(default_factory=dict)
    # Words of a warning that the run must give; without them it gives none.
    warns: str = ""
    # Words of one more that delete_insert gives.
    replaced: str = ""


Cell = Refused | Stored


@dataclass(frozen=True)
class SchemaChange:
    """One change of a query, beside the columns `id` and `at` which stay."""

    key: str
    title: str
    # Columns of the table before, as Spark and as Iceberg write their types; values of rows 1 and 2.
    before: Mapping[str, tuple[str, str]]
    stored: Mapping[int, Row]
    # What the query selects now, columns as Iceberg has them; values of rows 1, 2 and 3.
    select: str
    after: Mapping[str, str]
    fresh: Mapping[int, Row]
    # What the source has, as Spark's SQL writes it: a row each.
    source: str
    cells: Mapping[str, Cell]
    renames: Mapping[str, str] = field(default_factory=dict)

    @property
    def old_query(self) -> str:
        return f"SELECT {', '.join(['id', 'at', *self.before])} FROM source_{self.key}"

    @property
    def query(self) -> str:
        return f"SELECT {self.select} FROM source_{self.key}"

    def cell(self, policy: str) -> Cell:
        """A rebuilding policy does the same for every change."""
        rebuilt = (
            "rebuilt by one atomic replace" if policy == "full_refresh" else "rebuilt from chunks, swapped in at the end"
        )
        if policy in self.cells:
            return self.cells[policy]
        if policy == "recreate_empty":
            return Stored(self.after, "empty table of the new columns, last value cleared, the run ends there")
        return Stored(self.after, rebuilt)


def same_everywhere(columns: Mapping[str, str], told: str) -> dict[str, Cell]:
    return dict.fromkeys(POLICIES, Stored(columns, told))


def expected_rows(change: SchemaChange, policy: str, strategy: str, cell: Stored) -> list[Row]:
    """The rows that must be there: row 1 as stored, row 2 new (and old as well with append), row 3 new."""
    if policy in ("full_refresh", "full_incremental_refresh", "recreate_empty") and policy not in change.cells:
        numbers = () if policy == "recreate_empty" else (1, 2, 3)
        return [{"id": n, "at": at(n, new=True), **change.fresh[n]} for n in numbers]
    old = [_old(change, cell, 1)] + ([_old(change, cell, 2)] if strategy == "append" else [])
    new = [_new(change, cell, n, keeps=strategy == "merge" and n == 2) for n in (2, 3)]
    return old + new


def at(number: int, *, new: bool) -> int:
    """Rows 2 and 3 have changed since: they are at 3. Row 1 is where it was."""
    return 3 if new and number > 1 else number


def _old(change: SchemaChange, cell: Stored, number: int) -> Row:
    before = change.stored[number]
    values = {name: before.get(cell.called.get(name, name)) for name in cell.columns}
    return {"id": number, "at": at(number, new=False), **_converted(values, cell.old)}


def _new(change: SchemaChange, cell: Stored, number: int, *, keeps: bool) -> Row:
    fresh = {name.lower(): value for name, value in change.fresh[number].items()}
    values = {}
    for name in cell.columns:
        kept = keeps and name.lower() not in fresh
        values[name] = change.stored[number].get(name) if kept else fresh.get(name.lower())
    return {"id": number, "at": at(number, new=True), **_converted(values, cell.new)}


def _converted(values: Row, how: Mapping[str, Convert]) -> Row:
    return {name: how[name](value) if name in how and value is not None else value for name, value in values.items()}


def rows_of(values: Mapping[int, str]) -> str:
    """Rows 1 to 3 of a source: `id`, `at`, and SQL for the rest."""
    return " UNION ALL ".join(f"SELECT {n} AS id, {at(n, new=True)} AS at, {values[n]}" for n in (1, 2, 3))


NAME = {1: "a", 2: "b"}
NEW_NAME = {1: "a", 2: "B", 3: "C"}
_V = {"v": ("string", "string")}
_STORED_V = {n: {"v": NAME[n]} for n in (1, 2)}
_FRESH_V = {n: {"v": NEW_NAME[n]} for n in (1, 2, 3)}


def one_type(
    key: str, title: str, old: tuple[str, str], new: tuple[str, str], stored: tuple[Any, Any], fresh: tuple[Any, Any, Any],
    sql: tuple[str, str, str], cells: Mapping[str, Cell],
) -> SchemaChange:  # fmt: skip
    """A column `n` whose type changes."""
    return SchemaChange(
        key,
        title,
        before={"n": old},
        stored={n: {"n": value} for n, value in enumerate(stored, 1)},
        select="id, at, n",
        after={"n": new[1]},
        fresh={n: {"n": value} for n, value in enumerate(fresh, 1)},
        source=rows_of({n: f"CAST({value} AS {new[0]}) AS n" for n, value in enumerate(sql, 1)}),
        cells=cells,
    )


FAIL_TYPE = Refused(r"type of n \(.* → .*\)")
# A rename of which the policy knows nothing.
RENAME_LEFT: dict[str, Cell] = {
    "fail": Refused("v → w looks like a rename"),
    "ignore": Stored(
        {"v": "string"}, "old stays, new is not stored, with a warning", warns="w of the query is not", replaced="v stays"
    ),
    "append_new_columns": Stored(
        {"v": "string", "w": "string"}, "both columns", warns="v → w looks like a rename", replaced="v stays"
    ),
}


def widened(old: str, new: str, ignored: Cell | None = None) -> dict[str, Cell]:
    """A wider type that the format takes in place; the values fit into the old one, unless `ignore` is told otherwise."""
    in_place = Stored({"n": new}, "widened in place")
    kept = ignored or Stored({"n": old}, "cast to the table's type")
    return {"fail": FAIL_TYPE, "ignore": kept, "append_new_columns": in_place, "sync_all_columns": in_place}


CHANGES = (
    SchemaChange(
        "none", "none",
        before=_V, stored=_STORED_V, select="id, at, v", after={"v": "string"}, fresh=_FRESH_V,
        source=rows_of({n: f"'{NEW_NAME[n]}' AS v" for n in (1, 2, 3)}),
        cells=same_everywhere({"v": "string"}, "runs incrementally"),
    ),
    SchemaChange(
        "new", "new column",
        before=_V, stored=_STORED_V, select="id, at, x, v", after={"x": "long", "v": "string"},
        fresh={n: {"v": NEW_NAME[n], "x": n} for n in (1, 2, 3)},
        source=rows_of({n: f"CAST({n} AS bigint) AS x, '{NEW_NAME[n]}' AS v" for n in (1, 2, 3)}),
        cells={
            "fail": Refused(r"new x \(long\)"),
            "ignore": Stored({"v": "string"}, "shared columns written, with a warning", warns="x of the query"),
            "append_new_columns": Stored({"v": "string", "x": "long"}, "added at the end, old rows NULL"),
            "sync_all_columns": Stored({"v": "string", "x": "long"}, "added at the end, old rows NULL"),
        },
    ),
    SchemaChange(
        "missing", "missing column",
        before={"v": ("string", "string"), "w": ("int", "int")},
        stored={1: {"v": "a", "w": 10}, 2: {"v": "b", "w": 20}},
        select="id, at, v", after={"v": "string"}, fresh=_FRESH_V,
        source=rows_of({n: f"'{NEW_NAME[n]}' AS v, 0 AS w" for n in (1, 2, 3)}),
        cells={
            "fail": Refused(r"missing w \(int\)"),
            **dict.fromkeys(
                ("ignore", "append_new_columns"),
                Stored(
                    {"v": "string", "w": "int"},
                    "stays; new rows NULL, merge keeps the value of matched rows, delete_insert warns that it does not",
                    replaced="w stays, but rows that delete_insert",
                ),
            ),
            "sync_all_columns": Stored({"v": "string"}, "dropped last of all, restorable", warns="w .* is dropped"),
        },
    ),
    one_type(
        "wider_int", "wider type, values fit: int → bigint", ("int", "int"), ("bigint", "long"), (1, 2), (1, 22, 33),
        ("1", "22", "33"),
        widened("int", "long"),
    ),
    one_type(
        "wider_beyond", "wider type, a value does not fit: int → bigint", ("int", "int"), ("bigint", "long"), (1, 2),
        (1, 5_000_000_000, 33), ("1", "5000000000", "33"),
        widened("int", "long", Refused("n do not fit into int, such as 5000000000")),
    ),
    one_type(
        "wider_float", "wider type: float → double", ("float", "float"), ("double", "double"), (0.5, 1.5), (0.5, 2.5, 3.5),
        ("0.5", "2.5", "3.5"),
        widened("float", "double"),
    ),
    one_type(
        "wider_decimal", "wider type: decimal precision up, same scale", ("decimal(5,2)", "decimal(5, 2)"),
        ("decimal(9,2)", "decimal(9, 2)"), (Decimal("1.10"), Decimal("2.20")),
        (Decimal("1.10"), Decimal("22.20"), Decimal("33.30")), ("1.1", "22.2", "33.3"),
        widened("decimal(5, 2)", "decimal(9, 2)"),
    ),
    one_type(
        "wider_date", "wider type that the format cannot take in place: date → timestamp", ("date", "date"),
        ("timestamp_ntz", "timestamp"), (date(2024, 1, 1), date(2024, 1, 2)),
        (datetime(2024, 1, 1), datetime(2024, 2, 2), datetime(2024, 3, 3)),  # noqa: DTZ001
        ("'2024-01-01'", "'2024-02-02'", "'2024-03-03'"),
        {
            "fail": FAIL_TYPE,
            "ignore": Stored({"n": "date"}, "cast to the table's type", new={"n": lambda value: value.date()}),
            "append_new_columns": Stored({"n": "date"}, "cast to the table's type", new={"n": lambda value: value.date()}),
            "sync_all_columns": Stored(
                {"n": "timestamp"}, "converted: every date is a timestamp",
                old={"n": lambda value: datetime(value.year, value.month, value.day)},  # noqa: DTZ001
            ),
        },
    ),
    one_type(
        "narrower", "narrower type, values fit: bigint → int", ("bigint", "long"), ("int", "int"), (1, 2), (1, 22, 33),
        ("1", "22", "33"),
        {
            "fail": FAIL_TYPE,
            "ignore": Stored({"n": "long"}, "kept in the wider type"),
            "append_new_columns": Stored({"n": "long"}, "kept in the wider type"),
            "sync_all_columns": Stored({"n": "int"}, "converted: every stored value converts exactly"),
        },
    ),
    one_type(
        "narrower_beyond", "narrower type, a stored value does not fit", ("bigint", "long"), ("int", "int"),
        (1, 5_000_000_000), (1, 22, 33), ("1", "22", "33"),
        {
            "fail": FAIL_TYPE,
            "ignore": Stored({"n": "long"}, "kept in the wider type"),
            "append_new_columns": Stored({"n": "long"}, "kept in the wider type"),
            "sync_all_columns": Refused(r"n cannot be converted to int: 1 stored values .* 5000000000"),
        },
    ),
    one_type(
        "other", "other type, values convert exactly: string → int", ("string", "string"), ("int", "int"), ("1", "2"),
        (1, 22, 33), ("1", "22", "33"),
        {
            "fail": FAIL_TYPE,
            "ignore": Stored({"n": "string"}, "cast to the table's type", new={"n": str}),
            "append_new_columns": Stored({"n": "string"}, "cast to the table's type", new={"n": str}),
            "sync_all_columns": Stored({"n": "int"}, "converted: every stored value converts exactly", old={"n": int}),
        },
    ),
    one_type(
        "other_beyond", "other type, a value does not convert: int → string", ("int", "int"), ("string", "string"), (1, 2),
        ("1", "x", "33"), ("'1'", "'x'", "'33'"),
        {
            "fail": FAIL_TYPE,
            "ignore": Refused('n do not fit into int, such as "x"'),
            "append_new_columns": Refused('n do not fit into int, such as "x"'),
            "sync_all_columns": Stored({"n": "string"}, "converted: every stored value converts exactly", old={"n": str}),
        },
    ),
    SchemaChange(
        "rename", "rename (one column new, one missing)",
        before=_V, stored=_STORED_V, select="id, at, v AS w", after={"w": "string"},
        fresh={n: {"w": NEW_NAME[n]} for n in (1, 2, 3)},
        source=rows_of({n: f"'{NEW_NAME[n]}' AS v" for n in (1, 2, 3)}),
        cells={
            **RENAME_LEFT,
            "sync_all_columns": Stored({"w": "string"}, "add and drop, with a warning", warns="v → w looks like a rename"),
        },
    ),
    SchemaChange(
        "renamed", "rename, and the model says so with `renames`",
        before=_V, stored=_STORED_V, select="id, at, v AS w", after={"w": "string"}, renames={"v": "w"},
        fresh={n: {"w": NEW_NAME[n]} for n in (1, 2, 3)},
        source=rows_of({n: f"'{NEW_NAME[n]}' AS v" for n in (1, 2, 3)}),
        cells={
            **RENAME_LEFT,
            "sync_all_columns": Stored({"w": "string"}, "renamed by metadata, values kept", called={"w": "v"}),
        },
    ),
    SchemaChange(
        "struct_gains", "struct gains a field",
        before={"s": ("struct<a: int>", "struct<a: int>")},
        stored={1: {"s": {"a": 1}}, 2: {"s": {"a": 2}}},
        select="id, at, s", after={"s": "struct<b: string, a: int>"},
        fresh={n: {"s": {"b": NEW_NAME[n], "a": n * 10}} for n in (1, 2, 3)},
        source=rows_of({n: f"named_struct('b', '{NEW_NAME[n]}', 'a', {n * 10}) AS s" for n in (1, 2, 3)}),
        cells={
            "fail": Refused(r"new s\.b \(string\)"),
            "ignore": Stored(
                {"s": "struct<a: int>"}, "shared leaves written, with a warning", new={"s": lambda s: {"a": s["a"]}},
                warns="s.b of the query is not stored",
            ),
            **dict.fromkeys(
                ("append_new_columns", "sync_all_columns"),
                Stored(
                    {"s": "struct<a: int, b: string>"}, "leaf added by path, old rows NULL in it",
                    old={"s": lambda s: s | {"b": None}}, new={"s": lambda s: {"a": s["a"], "b": s["b"]}},
                ),
            ),
        },
    ),
    SchemaChange(
        "array_gains", "struct in an array gains a field",
        before={"s": ("array<struct<a: int>>", "list<struct<a: int>>")},
        stored={1: {"s": [{"a": 1}]}, 2: {"s": []}},
        select="id, at, s", after={"s": "list<struct<a: int, b: int>>"},
        fresh={n: {"s": [{"a": n, "b": n * 2}]} for n in (1, 2, 3)},
        source=rows_of({n: f"array(named_struct('a', {n}, 'b', {n * 2})) AS s" for n in (1, 2, 3)}),
        cells={
            "fail": Refused(r"new s\.element\.b \(int\)"),
            "ignore": Stored(
                {"s": "list<struct<a: int>>"}, "shared leaves written, with a warning",
                new={"s": lambda s: [{"a": each["a"]} for each in s]}, warns="s.element.b of the query is not stored",
            ),
            **dict.fromkeys(
                ("append_new_columns", "sync_all_columns"),
                Stored(
                    {"s": "list<struct<a: int, b: int>>"}, "leaf added by path, old rows NULL in it",
                    old={"s": lambda s: [each | {"b": None} for each in s]},
                ),
            ),
        },
    ),
    SchemaChange(
        "map_gains", "struct in a map's values gains a field",
        before={"s": ("map<string, struct<a: int>>", "map<string, struct<a: int>>")},
        stored={1: {"s": [("k", {"a": 1})]}, 2: {"s": [("k", {"a": 2})]}},
        select="id, at, s", after={"s": "map<string, struct<a: int, b: int>>"},
        fresh={n: {"s": [("k", {"a": n, "b": n * 2})]} for n in (1, 2, 3)},
        source=rows_of({n: f"map('k', named_struct('a', {n}, 'b', {n * 2})) AS s" for n in (1, 2, 3)}),
        cells={
            "fail": Refused(r"new s\.value\.b \(int\)"),
            "ignore": Stored(
                {"s": "map<string, struct<a: int>>"}, "shared leaves written, with a warning",
                new={"s": lambda s: [(key, {"a": each["a"]}) for key, each in s]},
                warns="s.value.b of the query is not stored",
            ),
            **dict.fromkeys(
                ("append_new_columns", "sync_all_columns"),
                Stored(
                    {"s": "map<string, struct<a: int, b: int>>"}, "leaf added by path, old rows NULL in it",
                    old={"s": lambda s: [(key, each | {"b": None}) for key, each in s]},
                ),
            ),
        },
    ),
    SchemaChange(
        "struct_loses", "struct loses a field",
        before={"s": ("struct<a: int, b: int>", "struct<a: int, b: int>")},
        stored={1: {"s": {"a": 1, "b": 1}}, 2: {"s": {"a": 2, "b": 2}}},
        select="id, at, s", after={"s": "struct<a: int>"},
        fresh={n: {"s": {"a": n * 10}} for n in (1, 2, 3)},
        source=rows_of({n: f"named_struct('a', {n * 10}) AS s" for n in (1, 2, 3)}),
        cells={
            "fail": Refused(r"missing s\.b \(int\)"),
            **dict.fromkeys(
                ("ignore", "append_new_columns"),
                Stored(
                    {"s": "struct<a: int, b: int>"}, "leaf stays, written rows NULL in it",
                    new={"s": lambda s: s | {"b": None}}, replaced=r"s\.b stays, but rows that delete_insert",
                ),
            ),
            "sync_all_columns": Stored(
                {"s": "struct<a: int>"}, "leaf dropped", old={"s": lambda s: {"a": s["a"]}}, warns=r"s\.b .* is dropped"
            ),
        },
    ),
    SchemaChange(
        "case", "letter case only",
        before=_V, stored=_STORED_V, select="ID, At, V", after={"v": "string"}, fresh=_FRESH_V,
        source=rows_of({n: f"'{NEW_NAME[n]}' AS v" for n in (1, 2, 3)}),
        cells=same_everywhere({"v": "string"}, "runs incrementally, stored spelling kept"),
    ),
)  # fmt: skip

CELLS = [(change, policy, strategy) for change in CHANGES for policy in POLICIES for strategy in STRATEGIES]


def document() -> str:
    """The table as a page."""
    lines = [
        "# Schema changes: what each policy does",
        "",
        f"Made from the table that the tests run: {len(CELLS)} cells, {len(CHANGES)} changes × {len(POLICIES)} policies × "
        f"{len(STRATEGIES)} strategies. The result is the same for every strategy unless said. *Error* always means: before "
        "anything is written; table and state stay as they were.",
        "",
        "| change | " + " | ".join(f"`{policy}`" for policy in POLICIES) + " |",
        "|---" * (len(POLICIES) + 1) + "|",
    ]
    for change in CHANGES:
        cells = [change.cell(policy) for policy in POLICIES]
        told = [f"{cell.told}" if isinstance(cell, Stored) else "**error**" for cell in cells]
        lines.append(f"| {change.title} | " + " | ".join(told) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    DOCUMENT.write_text(document())
