"""The checks of a staged state, without Spark: pyiceberg writes the lake, and every fault turns its check red."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, In
from pyiceberg.table import Table

from tidemark.catalog.checks import EXTRACTED, SCOPE, Evidence, Verification
from tidemark.catalog.names import qualified_name, unit_key
from tidemark.catalog.rows import STATE_SCHEMA, VANISHED, Kind, Row, as_table
from tidemark.catalog.units import UnitLabels
from tidemark.lake import LakeReader, LakeSettings

pytestmark = pytest.mark.fast

NAME = "catalog.app_1"
SCHEMA = qualified_name("app", "1", "db", "s")


def unit(name: str) -> str:
    return f"{SCHEMA}/{name}"


def table_row(name: str, run: str, label: str = "CREATED", signal: str = "d") -> Row:
    return Row(Kind.TABLE, unit_key(unit(name)), 0, unit(name), unit(name), "1", signal, label, run, f"{name} {signal}")


def column_rows(name: str, run: str, label: str, *columns: str) -> list[Row]:
    return [
        Row(Kind.COLUMN, unit_key(unit(name)), n, f"{unit(name)}/{column}", unit(name), None, None, label, run, column)
        for n, column in enumerate(columns, start=1)
    ]


def whole(name: str, run: str, label: str, signal: str, *columns: str) -> list[Row]:
    return [table_row(name, run, label, signal), *column_rows(name, run, label, *columns)]


@dataclass
class Merge:
    """What a run listed, read and made of it. Tests spoil one of the three."""

    listed: list[Row] = field(
        default_factory=lambda: [
            table_row("still", "run", "NO CHANGE"),
            table_row("updated", "run", "UPDATED", "listed"),
            table_row("created", "run", "CREATED", "listed"),
            table_row("removed", "run", "REMOVED"),
            table_row("hidden", "run", "UNKNOWN"),
            table_row("went", "run", "UPDATED", "listed"),
        ]
    )
    read: list[Row] = field(
        default_factory=lambda: [
            *whole("updated", "run", "UPDATED", "read", "a", "c"),
            *whole("created", "run", "CREATED", "read", "a", "b"),
            replace_kind(table_row("went", "run", "UPDATED")),
        ]
    )
    dropped: list[str] = field(default_factory=lambda: ["updated", "removed"])
    added: list[Row] | None = None

    @property
    def appended(self) -> list[Row]:
        return [row for row in self.read if row.kind != VANISHED] if self.added is None else self.added


def replace_kind(row: Row) -> Row:
    return row._replace(kind=VANISHED, object_id=None, digest=None, entity="")


@pytest.fixture
def lake(tmp_path: Path) -> LakeReader:
    """A state of five tables, each in files of its own."""
    (tmp_path / "lake").mkdir()
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"file://{tmp_path}/lake"}
    reader = LakeReader(LakeSettings(settings))
    reader.catalog.create_namespace("catalog")
    table = reader.catalog.create_table(NAME, STATE_SCHEMA)
    for name in ("still", "updated", "removed", "hidden", "went"):
        table.append(as_table(whole(name, "before", "CREATED", "d", "a", "b")))
    return reader


def staged(lake: LakeReader, merge: Merge, spoil: Callable[[Table], object] | None = None) -> Evidence:
    table = lake.existing(NAME)
    base = table.current_snapshot()
    if merge.dropped:
        table.delete(In("unit_key", [unit_key(unit(name)) for name in merge.dropped]))
    if merge.appended:
        table.append(as_table(merge.appended))
    if spoil:
        spoil(table)
    after = table.current_snapshot()
    assert base
    assert after
    return Evidence(
        lake, NAME, "run", base.snapshot_id, after.snapshot_id, UnitLabels.of([as_table(merge.listed)]),
        reader_of(merge.listed, SCOPE), reader_of(merge.read, EXTRACTED), 30, False,
    )  # fmt: skip


def reader_of(rows: Iterable[Row], fields: list[str]) -> Callable[[], pa.RecordBatchReader]:
    return lambda: as_table(rows).select(fields).to_reader()


def verdicts(evidence: Evidence) -> dict[str, list[str]]:
    """The checks that failed, and their examples."""
    verification = Verification(evidence)
    try:
        return {each.name: each.facts.get("first", []) for each in verification.results() if not each.passed}
    finally:
        verification.close()


def test_a_right_merge_passes_also_byte_for_byte(lake: LakeReader) -> None:
    evidence = staged(lake, Merge())
    assert verdicts(evidence) == {}
    assert verdicts(replace(evidence, whole=True)) == {}
    assert verdicts(replace(evidence, rewritten=True)) == {}


def without(rows: list[Row], *names: str) -> list[Row]:
    return [row for row in rows if row.qualified_name not in map(unit, names)]


def rewritten(name: str, **fields: str) -> Callable[[Table], object]:
    """The rows of a unit are put into another file, with other values."""

    def spoil(table: Table) -> None:
        rows = table.scan(row_filter=EqualTo("unit", unit(name))).to_arrow().cast(STATE_SCHEMA)
        table.delete(EqualTo("unit", unit(name)))
        table.append(as_table(Row(**row)._replace(**fields) for row in rows.to_pylist()))

    return spoil


READ = Merge().appended
WRONG: dict[str, tuple[str, Merge, Callable[[Table], object] | None]] = {
    "a carried column is lost": ("decision_matrix", Merge(), lambda t: t.delete(EqualTo("qualified_name", unit("still/b")))),
    "a carried column is lost, by counts": (
        "counts_add_up", Merge(), lambda t: t.delete(EqualTo("qualified_name", unit("still/b")))),
    "a carried table is lost": (
        "decision_matrix", Merge(), lambda t: t.delete(EqualTo("qualified_name", unit("still")))),
    "columns of a lost table": (
        "no_orphan_columns", Merge(), lambda t: t.delete(EqualTo("qualified_name", unit("still")))),
    "a carried table is lost with its columns": ("decision_matrix", Merge(dropped=["updated", "removed", "still"]), None),
    "a hidden table is lost": ("decision_matrix", Merge(dropped=["updated", "removed", "hidden"]), None),
    "a table that went while it was read is lost": ("decision_matrix", Merge(dropped=["updated", "removed", "went"]), None),
    "carried rows were rewritten": ("carried_unchanged", Merge(), rewritten("still")),
    "carried entities are others": ("decision_matrix", Merge(), rewritten("still", entity="{}")),
    "a carried table has another signal": ("decision_matrix", Merge(), rewritten("still", digest="x")),
    "carried rows pass for the run's own": ("decision_matrix", Merge(), rewritten("still", run_id="run")),
    "a removed table stays": ("decision_matrix", Merge(dropped=["updated"]), None),
    "an updated table keeps its old rows": ("decision_matrix", Merge(dropped=["removed"]), None),
    "an updated table keeps its old name twice": ("no_duplicate_names", Merge(dropped=["removed"]), None),
    "a column is missing": ("decision_matrix", Merge(added=without(READ, "updated/c")), None),
    "a table is missing": ("decision_matrix", Merge(added=without(READ, "created", "created/a", "created/b")), None),
    "a table was never read": (
        "decision_matrix", Merge(read=without(Merge().read, "created", "created/a", "created/b")), None),
    "a column has other content": (
        "decision_matrix",
        Merge(added=[*without(READ, "updated/c"), *(r._replace(entity="x") for r in READ if r.entity == "c")]), None),
    "a table has the signal of the listing": (
        "decision_matrix",
        Merge(added=[*without(READ, "updated"), READ[0]._replace(digest="listed")]), None),
    "a column twice": ("no_duplicate_names", Merge(added=[*READ, READ[-1]]), None),
    "an orphan": ("no_orphan_columns", Merge(added=[*READ, *column_rows("ghost", "run", "CREATED", "a")]), None),
    "a table that nobody listed": ("decision_matrix", Merge(added=[*READ, table_row("ghost", "run")]), None),
    "a column of another table's name": (
        "no_orphan_columns", Merge(added=[*READ, READ[-1]._replace(qualified_name=unit("elsewhere/a"))]), None),
    "rows of no run": ("carried_unchanged", Merge(added=[*READ, *whole("updated", "other", "UPDATED", "read", "z")]), None),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_merge_turns_its_check_red(lake: LakeReader, wrong: str) -> None:
    expected, merge, spoil = WRONG[wrong]
    evidence = staged(lake, merge, spoil)
    for everything in (False, True):
        found = verdicts(replace(evidence, whole=everything))
        assert expected in found
        assert all(found[name] for name in found if name in ("decision_matrix", "no_orphan_columns", "no_duplicate_names"))


def test_faults_are_shown_by_name(lake: LakeReader) -> None:
    found = verdicts(staged(lake, Merge(dropped=["updated"], added=[*READ, table_row("ghost", "run")])))
    assert found["decision_matrix"] == [
        f"{unit('ghost')} · none · not in scope, yet in the state",
        f"{unit('removed')} · REMOVED · removed, yet still there",
    ]


def test_too_many_removals_are_counted(lake: LakeReader) -> None:
    names = [f"t{n}" for n in range(20)]
    lake.existing(NAME).append(as_table(row for name in names for row in whole(name, "before", "CREATED", "d", "a")))
    listed = [*Merge().listed, *(table_row(name, "run", "REMOVED") for name in names)]
    evidence = staged(lake, Merge(listed=listed, dropped=["updated", "removed", *names]))
    assert list(verdicts(evidence)) == ["removals_within_guard"]
    assert verdicts(replace(evidence, removals_allowed=True)) == {}
