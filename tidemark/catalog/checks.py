"""Checks of a staged state by a second engine: DuckDB over the files that pyiceberg finds.

Nothing here shares code with the merge, so a fault of the merge cannot hide in it. That carried rows are untouched is proved
from the lake's own metadata: files never change, the files that a run added hold rows of that run only, and every carried
table has as many rows as before. Only what a run touched is compared row by row; `whole=True` compares everything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.catalog.labels import GUARDED_TABLES
from tidemark.catalog.rows import STATE_SCHEMA
from tidemark.checks import CheckResult
from tidemark.lake import LakeReader, SnapshotFiles, no_rows, quoted

FIRST = 5

UNITS = "kind, unit_key, qualified_name, entity, run_id"


@dataclass(frozen=True)
class Evidence:
    """What a staged state is judged by."""

    reader: LakeReader
    table: str
    run_id: str
    base: int | None
    staged: int
    # Every unit with its label, as the plan of the run has it.
    units: pa.Table
    # What was read from the source: kind, unit_key, unit, qualified_name, entity. It can be read once.
    extracted: pa.RecordBatchReader
    max_removed_percent: float
    removals_allowed: bool
    whole: bool = False


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
        arrived = {"units_arrived": e.units, "extracts_arrived": e.extracted}
        for name, rows in arrived.items():
            self._db.register(name, rows)
        hashed = "unit_key, hash(qualified_name) AS name, hash(qualified_name, entity) AS content, "
        hashed += "starts_with(qualified_name, unit || '/') AS inside"
        for name, query in {
            "scope": "SELECT kind, unit_key, qualified_name, entity, label FROM units_arrived",
            "before_units": f"SELECT {UNITS} FROM {before} WHERE kind <> 'column'",
            "after_units": f"SELECT {UNITS} FROM {after} WHERE kind <> 'column'",
            "before_counts": f"SELECT unit_key, count(*) AS n FROM {before} WHERE kind = 'column' GROUP BY unit_key",
            "after_counts": f"SELECT unit_key, count(*) AS n FROM {after} WHERE kind = 'column' GROUP BY unit_key",
            "fresh": f"SELECT {hashed} FROM {after} WHERE kind = 'column' AND run_id = {quoted(e.run_id)}",
            "read_at_source": f"SELECT kind, {hashed} FROM extracts_arrived",
            "vanished": "SELECT unit_key FROM read_at_source WHERE kind = 'vanished'",
            "extracted": "SELECT * EXCLUDE (kind) FROM read_at_source WHERE kind = 'column'",
        }.items():
            self._db.execute(f"CREATE TEMP TABLE {name} AS {query}")
        for name in arrived:
            self._db.unregister(name)
        # What should become of each table, and what did.
        self._db.execute(DECISIONS)

    def _verdict(self, name: str, faults: str, good: str, bad: str, **facts: Any) -> CheckResult:
        """Passed when the query finds nothing; its first rows are the examples."""
        found = self._db.execute(f"SELECT * FROM ({faults}) ORDER BY ALL").fetchall()
        summary = good if not found else bad.format(n=len(found))
        examples = [" · ".join(str(value) for value in row) for row in found[:FIRST]]
        return CheckResult(name, not found, summary, {"faults": len(found), "first": examples} | facts)

    def _one(self, query: str) -> int:
        # All of it is fetched: DuckDB takes no other work while a result is unfinished.
        return int(self._db.execute(query).fetchall()[0][0] or 0)

    # --- the checks --------------------------------------------------------------------------------------------------

    def decision_matrix(self) -> CheckResult:
        return self._verdict(
            "decision_matrix",
            "SELECT qualified_name, label, fault FROM judged WHERE fault IS NOT NULL",
            f"{self._one('SELECT count(*) FROM judged')} units follow the decision matrix",
            "{n} units do not follow the decision matrix",
        )

    def no_orphan_columns(self) -> CheckResult:
        return self._verdict(
            "no_orphan_columns",
            """SELECT 'key ' || unit_key, n || ' columns without a table' FROM after_counts
               ANTI JOIN (FROM after_units WHERE kind = 'table') USING (unit_key)
               UNION ALL SELECT 'key ' || unit_key, 'a column named outside its table' FROM fresh WHERE NOT inside""",
            f"{self._one('SELECT sum(n) FROM after_counts')} columns belong to a table",
            "{n} tables are missing for columns that are there",
        )

    def no_duplicate_names(self) -> CheckResult:
        return self._verdict(
            "no_duplicate_names",
            """SELECT qualified_name, count(*) || ' times' FROM after_units GROUP BY ALL HAVING count(*) > 1
               UNION ALL SELECT 'a column of key ' || any_value(unit_key), count(*) || ' times' FROM fresh
               GROUP BY name HAVING count(*) > 1""",
            "every qualified name is there once",
            "{n} qualified names are there more than once",
        )

    def counts_add_up(self) -> CheckResult:
        before = self._one("SELECT sum(n) FROM before_counts")
        dropped = self._one("SELECT sum(n) FROM before_counts SEMI JOIN (FROM judged WHERE NOT carried) USING (unit_key)")
        brought = self._one("SELECT count(*) FROM extracted ANTI JOIN vanished USING (unit_key)")
        after = self._one("SELECT sum(n) FROM after_counts")
        passed = after == before - dropped + brought
        facts = {"before": before, "dropped": dropped, "fresh": brought, "after": after}
        sign = "=" if passed else "≠"
        return CheckResult("counts_add_up", passed, f"{before} − {dropped} + {brought} {sign} {after} columns", facts)

    def carried_unchanged(self) -> CheckResult:
        e = self._evidence
        old = self._before.data if self._before else {}
        new = self._after.data if self._after else {}
        added = sum(count for path, count in new.items() if path not in old)
        ours = self._one("SELECT count(*) FROM fresh") + self._one(
            f"SELECT count(*) FROM after_units WHERE run_id = {quoted(e.run_id)}"
        )
        facts = {
            "files before": len(old),
            "files added": len(set(new) - set(old)),
            "rows added": added,
            "rows of this run": ours,
        }
        if added != ours:
            return CheckResult("carried_unchanged", False, f"{added} rows were added, {ours} of them by this run", facts)
        if e.whole:
            return self._carried_byte_for_byte(facts)
        carried = self._one("SELECT count(*) FROM judged WHERE carried AND kind = 'table'")
        return CheckResult("carried_unchanged", True, f"columns of {carried} tables stay in the files they were in", facts)

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
            "ANTI JOIN (FROM after_units WHERE kind = 'table') USING (qualified_name)"
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

# One row per unit: its label, what its columns were, what was read for it, what is staged; and what is wrong with it.
DECISIONS = """
CREATE TEMP TABLE judged AS
WITH told AS (
    SELECT kind, unit_key, qualified_name, entity,
           CASE WHEN unit_key IN (FROM vanished) THEN 'REMOVED' ELSE label END AS label
    FROM scope),
read_from_source AS (SELECT unit_key, count(*) AS n, bit_xor(content) AS content FROM extracted GROUP BY ALL),
staged_by_run AS (SELECT unit_key, count(*) AS n, bit_xor(content) AS content FROM fresh GROUP BY ALL),
facts AS (
    SELECT t.*, t.label IN ('NO CHANGE', 'UNKNOWN') AS carried, t.label IN ('CREATED', 'UPDATED', 'BACKFILL') AS is_fresh,
           b.qualified_name IS NOT NULL AS was_there, a.qualified_name IS NOT NULL AS is_there,
           a.entity AS staged_entity, b.entity AS entity_before,
           coalesce(bc.n, 0) AS columns_before, coalesce(ac.n, 0) AS columns_after,
           coalesce(r.n, 0) AS columns_read, coalesce(s.n, 0) AS columns_fresh,
           r.content IS NOT DISTINCT FROM s.content AS same_content
    FROM told t
    LEFT JOIN before_units b USING (kind, qualified_name)
    LEFT JOIN (SELECT DISTINCT ON (kind, qualified_name) * FROM after_units) a USING (kind, qualified_name)
    LEFT JOIN before_counts bc ON bc.unit_key = t.unit_key
    LEFT JOIN after_counts ac ON ac.unit_key = t.unit_key
    LEFT JOIN read_from_source r ON r.unit_key = t.unit_key
    LEFT JOIN staged_by_run s ON s.unit_key = t.unit_key)
SELECT kind, unit_key, qualified_name, label, carried,
    CASE
        WHEN label = 'REMOVED' AND (is_there OR columns_after > 0) THEN 'removed, yet still there'
        WHEN label <> 'REMOVED' AND NOT is_there THEN 'in scope, yet not in the state'
        WHEN carried AND NOT was_there THEN 'carried, yet there was none before'
        WHEN carried AND columns_fresh > 0 THEN 'carried, yet it has columns of this run'
        WHEN carried AND columns_after <> columns_before
            THEN 'carried ' || columns_after || ' of ' || columns_before || ' columns'
        WHEN carried AND staged_entity <> entity_before THEN 'carried, yet its entity is another'
        WHEN is_fresh AND columns_after <> columns_fresh THEN 'fresh, yet it keeps old columns'
        WHEN is_fresh AND columns_fresh <> columns_read
            THEN 'has ' || columns_fresh || ' of the ' || columns_read || ' columns that were read'
        WHEN is_fresh AND NOT same_content THEN 'its columns are not those that were read'
        WHEN is_fresh AND staged_entity <> entity THEN 'its entity is not the one that was read'
    END AS fault
FROM facts
UNION ALL BY NAME
SELECT kind, unit_key, qualified_name, 'none' AS label, false AS carried, 'not in scope, yet in the state' AS fault
FROM after_units ANTI JOIN scope USING (kind, qualified_name)
"""
