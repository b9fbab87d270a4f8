"""Checks of a staged state by a second engine: DuckDB over the files that pyiceberg finds.

Nothing here shares code with the merge, so a fault of the merge cannot hide in it. That carried rows are untouched is proved
from the lake's own metadata: files never change, so rows that both states have in the same file at the same place are the
same rows. All others must be of units that the run replaced or removed, and what the run added must carry its name. Only
what a run touched is compared row by row; `whole=True` compares everything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.catalog.labels import GUARDED_TABLES
from tidemark.catalog.rows import STATE_SCHEMA
from tidemark.catalog.units import UnitLabels
from tidemark.checks import CheckResult
from tidemark.lake import LakeReader, SnapshotFiles, no_rows, quoted, rows_only_in

FIRST = 5

# What the checks must know of every unit as it was listed, and of every row that was read from the source.
SCOPE = ["kind", "unit_key", "qualified_name", "object_id", "digest", "entity", "label"]
EXTRACTED = ["kind", "unit_key", "unit", "qualified_name", "object_id", "digest", "entity"]
# Names, signals and entities are compared by 64 bits of a hash: the texts of a large catalogue do not fit into memory.
UNIT = "kind, unit_key, hash(qualified_name) AS name, hash(object_id, digest) AS signal, hash(entity) AS entity"


@dataclass(frozen=True)
class Evidence:
    """What a staged state is judged by."""

    reader: LakeReader
    table: str
    run_id: str
    base: int | None
    staged: int
    # Every unit as it was listed: keys and labels, and rows with the fields of SCOPE. What became of each is decided here
    # once more.
    labels: UnitLabels
    units: Callable[[], pa.RecordBatchReader]
    # What was read from the source, with the fields of EXTRACTED.
    extracted: Callable[[], pa.RecordBatchReader]
    max_removed_percent: float
    removals_allowed: bool
    whole: bool = False
    # Whether upkeep has put the rows into other files since: the files prove nothing then.
    rewritten: bool = False
    source_replaced: bool = False


def files_of(evidence: Evidence, snapshot: int | None) -> SnapshotFiles | None:
    return None if snapshot is None else evidence.reader.files(evidence.table, snapshot)


def rows_of(files: SnapshotFiles | None) -> str:
    """The rows of a state, to be put after FROM."""
    return no_rows(STATE_SCHEMA) if files is None else files.sql


class Verification:
    """All checks of one staged state."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._db = evidence.reader.connect()
        self._load()

    def close(self) -> None:
        self._db.close()

    def results(self) -> list[CheckResult]:
        return [check(self) for check in CHECKS.values()]

    # --- what the checks look at -------------------------------------------------------------------------------------

    def _load(self) -> None:
        e = self._evidence
        self._before = files_of(e, e.base)
        self._after = files_of(e, e.staged)
        before, after = rows_of(self._before), rows_of(self._after)
        ours = f"run_id = {quoted(e.run_id)}"
        columns = "unit_key, hash(qualified_name) AS name, hash(qualified_name, entity) AS content, "
        columns += "starts_with(qualified_name, unit || '/') AS inside"
        of_tables = "hash(object_id, digest) AS signal, CASE WHEN kind = 'table' THEN hash(entity) END AS entity"
        self._arrive("scope", f"SELECT {UNIT}, label FROM arrived", e.units())
        self._arrive("read_at_source", f"SELECT kind, {columns}, {of_tables} FROM arrived", e.extracted())
        self._make(
            {
                "vanished": "SELECT unit_key FROM read_at_source WHERE kind = 'vanished'",
                "tables_read": "SELECT unit_key, signal, entity FROM read_at_source WHERE kind = 'table'",
                "extracted": "SELECT unit_key, name, content FROM read_at_source WHERE kind = 'column'",
            }
        )
        self._db.execute("DROP TABLE read_at_source")
        self._make(
            {
                "before_units": f"SELECT {UNIT} FROM {before} WHERE kind <> 'column'",
                "after_units": f"SELECT {UNIT}, {ours} AS ours FROM {after} WHERE kind <> 'column'",
                "lost": f"SELECT DISTINCT unit_key FROM {self._only_in(self._before, self._after)}",
                "gained": f"SELECT DISTINCT unit_key FROM {self._only_in(self._after, self._before)}",
                "fresh": f"SELECT {columns} FROM {after} WHERE kind = 'column' AND {ours}",
                # Units that have rows in one state only. Of all others the columns are the same rows of the same files.
                "moved": "SELECT unit_key FROM lost UNION SELECT unit_key FROM gained UNION "
                "SELECT unit_key FROM scope WHERE label NOT IN ('NO CHANGE', 'UNKNOWN')",
                "before_counts": f"SELECT unit_key, count(*) AS n FROM {self._columns(before)} GROUP BY ALL",
                "after_counts": f"SELECT unit_key, count(*) AS n FROM {self._columns(after)} GROUP BY ALL",
            }
        )
        # What should become of each table, and what did.
        self._db.execute(DECISIONS, {"replaced": e.source_replaced})

    def _make(self, tables: Mapping[str, str]) -> None:
        for name, query in tables.items():
            self._db.execute(f"CREATE TEMP TABLE {name} AS {query}")

    def _arrive(self, name: str, query: str, rows: pa.RecordBatchReader) -> None:
        self._db.register("arrived", rows)
        self._db.execute(f"CREATE TEMP TABLE {name} AS {query}")
        self._db.unregister("arrived")

    def _only_in(self, one: SnapshotFiles | None, other: SnapshotFiles | None) -> str:
        """Rows of one state that the other does not have; none where files prove nothing."""
        return no_rows(STATE_SCHEMA) if self._evidence.rewritten or one is None else rows_only_in(one, other)

    def _columns(self, rows: str) -> str:
        """The columns of a state that are counted by table: of tables whose rows are other rows than before."""
        found = f"(SELECT unit_key FROM {rows} WHERE kind = 'column')"
        return found if self._evidence.rewritten else f"{found} SEMI JOIN moved USING (unit_key)"

    def _column_count(self, files: SnapshotFiles | None, units: str) -> int:
        """All columns of a state: its rows, as files and deletes have them, without the units."""
        return (self._evidence.reader.live(files) if files else 0) - self._one(f"SELECT count(*) FROM {units}")

    def _verdict(self, name: str, faults: str, good: str, bad: str, **facts: Any) -> CheckResult:
        """Passed when the query finds nothing; its first rows are the examples. A `name` is shown as what it stands for."""
        count = self._one(f"SELECT count(*) FROM ({faults})")
        examples = self._examples(faults) if count else []
        return CheckResult(
            name, not count, bad.format(n=count) if count else good, {"faults": count, "first": examples} | facts
        )

    def _examples(self, faults: str) -> list[str]:
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE faults AS {faults}")
        if "name" in {row[0] for row in self._db.execute("DESCRIBE faults").fetchall()}:
            units, after = "SELECT qualified_name FROM arrived", f"SELECT qualified_name FROM {rows_of(self._after)}"
            self._arrive(
                "named",
                f"SELECT DISTINCT * FROM ({units} UNION ALL {after} WHERE kind <> 'column') "
                "WHERE hash(qualified_name) IN (SELECT name FROM faults)",
                self._evidence.units(),
            )
            self._db.execute(
                "CREATE OR REPLACE TEMP TABLE faults AS SELECT qualified_name, faults.* EXCLUDE (name) "
                "FROM faults JOIN named ON hash(named.qualified_name) = faults.name; DROP TABLE named"
            )
        found = self._db.execute(f"FROM faults ORDER BY ALL LIMIT {FIRST}").fetchall()
        return [" · ".join(str(value) for value in row) for row in found]

    def _one(self, query: str) -> int:
        # All of it is fetched: DuckDB takes no other work while a result is unfinished.
        return int(self._db.execute(query).fetchall()[0][0] or 0)

    # --- the checks --------------------------------------------------------------------------------------------------

    def decision_matrix(self) -> CheckResult:
        return self._verdict(
            "decision_matrix",
            "SELECT name, label, fault FROM judged WHERE fault IS NOT NULL",
            f"{self._one('SELECT count(*) FROM judged')} units follow the decision matrix",
            "{n} units do not follow the decision matrix",
        )

    def no_orphan_columns(self) -> CheckResult:
        return self._verdict(
            "no_orphan_columns",
            """SELECT 'key ' || unit_key, n || ' columns without a table' FROM after_counts
               ANTI JOIN (FROM after_units WHERE kind = 'table') USING (unit_key)
               UNION ALL SELECT 'key ' || unit_key, 'a column named outside its table' FROM fresh WHERE NOT inside""",
            f"{self._one('SELECT count(*) FROM fresh')} columns of this run belong to a table, and the others as before",
            "{n} tables are missing for columns that are there",
        )

    def no_duplicate_names(self) -> CheckResult:
        return self._verdict(
            "no_duplicate_names",
            """SELECT kind || ' of key ' || any_value(unit_key), count(*) || ' times' FROM after_units
               GROUP BY kind, name HAVING count(*) > 1
               UNION ALL SELECT 'a column of key ' || any_value(unit_key), count(*) || ' times' FROM fresh
               GROUP BY name HAVING count(*) > 1""",
            "every qualified name is unique",
            "{n} qualified names are not unique",
        )

    def counts_add_up(self) -> CheckResult:
        before = self._column_count(self._before, "before_units")
        dropped = self._one("SELECT sum(n) FROM before_counts SEMI JOIN (FROM judged WHERE NOT carried) USING (unit_key)")
        brought = self._one("SELECT count(*) FROM extracted ANTI JOIN vanished USING (unit_key)")
        after = self._column_count(self._after, "after_units")
        passed = after == before - dropped + brought
        facts = {"before": before, "dropped": dropped, "fresh": brought, "after": after}
        sign = "=" if passed else "≠"
        return CheckResult("counts_add_up", passed, f"{before} − {dropped} + {brought} {sign} {after} columns", facts)

    def carried_unchanged(self) -> CheckResult:
        e = self._evidence
        old = self._before.data if self._before else {}
        new = self._after.data if self._after else {}
        added = sum(count for path, count in new.items() if path not in old)
        ours = self._one("SELECT count(*) FROM fresh") + self._one("SELECT count(*) FROM after_units WHERE ours")
        facts = {
            "files before": len(old),
            "files added": len(set(new) - set(old)),
            "rows added": added,
            "rows of this run": ours,
        }
        if e.rewritten:
            return self._carried_byte_for_byte(facts)
        if added != ours:
            return CheckResult("carried_unchanged", False, f"{added} rows were added, {ours} of them by this run", facts)
        if e.whole:
            return self._carried_byte_for_byte(facts)
        carried = self._one("SELECT count(*) FROM judged WHERE carried AND kind = 'table'")
        return self._verdict(
            "carried_unchanged",
            """SELECT name, 'it has rows in one of the two states only' AS fault FROM judged
               WHERE carried AND unit_key IN (SELECT unit_key FROM lost UNION SELECT unit_key FROM gained)""",
            f"columns of {carried} tables stay in the files they were in",
            "{n} carried units have other rows than before",
            **facts,
        )

    def _carried_byte_for_byte(self, facts: dict[str, Any]) -> CheckResult:
        content = "unit_key, hash(kind, qualified_name, entity) AS content"
        for name, files in (("whole_before", self._before), ("whole_after", self._after)):
            self._db.execute(f"CREATE TEMP TABLE {name} AS SELECT {content} FROM {rows_of(files)}")
        return self._verdict(
            "carried_unchanged",
            """WITH b AS (FROM whole_before SEMI JOIN (FROM judged WHERE carried) USING (unit_key)),
                    a AS (FROM whole_after SEMI JOIN (FROM judged WHERE carried) USING (unit_key))
               SELECT unit_key FROM ((FROM b EXCEPT ALL FROM a) UNION ALL (FROM a EXCEPT ALL FROM b))""",
            "carried entities are byte for byte what they were",
            "{n} carried entities differ from what they were",
            **facts,
        )

    def removals_within_guard(self) -> CheckResult:
        e = self._evidence
        known = self._one("SELECT count(*) FROM before_units WHERE kind = 'table'")
        removed = self._one(
            "SELECT count(*) FROM (FROM before_units WHERE kind = 'table') "
            "ANTI JOIN (FROM after_units WHERE kind = 'table') USING (name)"
        )
        within = removed <= GUARDED_TABLES or removed * 100 <= known * e.max_removed_percent
        summary = f"{removed} of {known} tables removed" + (
            " (allowed by hand)" if e.removals_allowed and not within else ""
        )
        facts = {"removed": removed, "known": known, "limit percent": e.max_removed_percent}
        return CheckResult("removals_within_guard", within or e.removals_allowed, summary, facts)


CHECKS: Mapping[str, Callable[[Verification], CheckResult]] = {
    "decision_matrix": Verification.decision_matrix,
    "no_orphan_columns": Verification.no_orphan_columns,
    "no_duplicate_names": Verification.no_duplicate_names,
    "counts_add_up": Verification.counts_add_up,
    "carried_unchanged": Verification.carried_unchanged,
    "removals_within_guard": Verification.removals_within_guard,
}

# One row per unit: its final label, what its columns were, what was read for it, what is staged; and what is wrong with it.
# A table dropped between listing and reading is carried if it was in the state of this source, and else leaves no trace.
DECISIONS = """
CREATE TEMP TABLE judged AS
WITH labelled AS (
    SELECT s.kind, s.unit_key, s.name, s.kind <> 'table' OR r.unit_key IS NOT NULL AS was_read,
           CASE WHEN s.kind = 'table' THEN r.entity ELSE s.entity END AS entity,
           CASE WHEN s.kind = 'table' THEN r.signal ELSE s.signal END AS signal,
           CASE WHEN v.unit_key IS NULL THEN s.label
                WHEN b.name IS NULL THEN 'NEVER THERE'
                WHEN $replaced THEN 'REMOVED' ELSE 'UNKNOWN' END AS label,
           b.name IS NOT NULL AS was_there, b.entity AS entity_before, b.signal AS signal_before
    FROM scope s
    LEFT JOIN tables_read r ON r.unit_key = s.unit_key AND s.kind = 'table'
    LEFT JOIN (SELECT DISTINCT unit_key FROM vanished) v ON v.unit_key = s.unit_key AND s.kind = 'table'
    LEFT JOIN before_units b ON b.kind = s.kind AND b.name = s.name),
read_from_source AS (SELECT unit_key, count(*) AS n, bit_xor(content) AS content FROM extracted GROUP BY ALL),
staged_by_run AS (SELECT unit_key, count(*) AS n, bit_xor(content) AS content FROM fresh GROUP BY ALL),
facts AS (
    SELECT t.*, t.label IN ('NO CHANGE', 'UNKNOWN') AS carried, t.label IN ('CREATED', 'UPDATED', 'BACKFILL') AS is_fresh,
           t.label IN ('REMOVED', 'NEVER THERE') AS is_gone, a.name IS NOT NULL AS is_there,
           a.entity AS staged_entity, a.signal AS staged_signal,
           coalesce(bc.n, 0) AS columns_before, coalesce(ac.n, 0) AS columns_after,
           coalesce(r.n, 0) AS columns_read, coalesce(s.n, 0) AS columns_fresh,
           r.content IS NOT DISTINCT FROM s.content AS same_content
    FROM labelled t
    LEFT JOIN (SELECT DISTINCT ON (kind, name) * FROM after_units) a ON a.kind = t.kind AND a.name = t.name
    LEFT JOIN before_counts bc ON bc.unit_key = t.unit_key
    LEFT JOIN after_counts ac ON ac.unit_key = t.unit_key
    LEFT JOIN read_from_source r ON r.unit_key = t.unit_key
    LEFT JOIN staged_by_run s ON s.unit_key = t.unit_key)
SELECT kind, unit_key, name, label, carried,
    CASE
        WHEN is_fresh AND NOT was_read THEN 'fresh, yet it was never read'
        WHEN is_gone AND (is_there OR columns_after > 0) THEN 'removed, yet still there'
        WHEN NOT is_gone AND NOT is_there THEN 'in scope, yet not in the state'
        WHEN carried AND NOT was_there THEN 'carried, yet there was none before'
        WHEN carried AND columns_fresh > 0 THEN 'carried, yet it has columns of this run'
        WHEN carried AND columns_after <> columns_before
            THEN 'carried ' || columns_after || ' of ' || columns_before || ' columns'
        WHEN carried AND staged_entity <> entity_before THEN 'carried, yet its entity is another'
        WHEN carried AND staged_signal <> signal_before THEN 'carried, yet its signal is another'
        WHEN is_fresh AND columns_after <> columns_fresh THEN 'fresh, yet it keeps old columns'
        WHEN is_fresh AND columns_fresh <> columns_read
            THEN 'has ' || columns_fresh || ' of the ' || columns_read || ' columns that were read'
        WHEN is_fresh AND NOT same_content THEN 'its columns are not those that were read'
        WHEN is_fresh AND staged_entity <> entity THEN 'its entity is not the one that was read'
        WHEN is_fresh AND staged_signal <> signal THEN 'its signal is not that of what was read'
    END AS fault
FROM facts
UNION ALL BY NAME
SELECT kind, unit_key, name, 'none' AS label, false AS carried, 'not in scope, yet in the state' AS fault
FROM after_units ANTI JOIN scope USING (kind, name)
"""
