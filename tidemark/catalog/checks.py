"""Checks of a staged state by a second engine: DuckDB over what pyiceberg reads.

Nothing here shares code with the merge, so a fault of the merge cannot hide in it. That carried rows are untouched is proved
from the lake's own metadata: files never change, the files that a run added hold rows of that run only, and every carried
table has as many rows as before. Only what a run touched is compared row by row; `whole=True` compares everything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from tidemark.catalog.labels import GUARDED_TABLES
from tidemark.lake import LakeReader

FIRST = 5

UNITS = ["kind", "unit_key", "qualified_name", "entity", "run_id"]


@dataclass(frozen=True)
class CheckResult:
    """The verdict of one check, with numbers that somebody can act on."""

    name: str
    passed: bool
    summary: str
    facts: Mapping[str, Any] = field(default_factory=dict)


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
    # What was read from the source: kind, unit_key, unit, qualified_name, entity.
    extracted: pa.Table
    max_removed_percent: float
    removals_allowed: bool
    whole: bool = False


class Verification:
    """All checks of one staged state."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._db = duckdb.connect(config={"threads": 2})
        self._load()

    def close(self) -> None:
        self._db.close()

    def results(self) -> list[CheckResult]:
        return [check(self) for check in CHECKS.values()]

    # --- what the checks look at -------------------------------------------------------------------------------------

    def _load(self) -> None:
        e = self._evidence
        columns, others = "kind = 'column'", "kind <> 'column'"
        empty = pa.schema(
            [
                ("kind", pa.string()),
                ("unit_key", pa.int64()),
                ("qualified_name", pa.string()),
                ("entity", pa.string()),
                ("run_id", pa.string()),
            ]
        ).empty_table()

        def read(snapshot: int | None, fields: list[str], where: Any) -> pa.Table:
            return empty.select(fields) if snapshot is None else e.reader.read(e.table, snapshot, fields, where)

        rows = ["kind", "unit_key", "unit", "qualified_name", "entity"]
        self._keep("scope", e.units, "kind, unit_key, qualified_name, entity, label")
        self._keep("before_units", read(e.base, UNITS, others), ", ".join(UNITS))
        self._keep("after_units", read(e.staged, UNITS, others), ", ".join(UNITS))
        self._keep("before_counts", read(e.base, ["unit_key"], columns), "unit_key, count(*) AS n", "GROUP BY unit_key")
        self._keep("after_counts", read(e.staged, ["unit_key"], columns), "unit_key, count(*) AS n", "GROUP BY unit_key")
        hashed = "unit_key, hash(qualified_name) AS name, hash(qualified_name, entity) AS content, "
        hashed += "starts_with(qualified_name, unit || '/') AS inside"
        fresh = e.reader.read(e.table, e.staged, rows, f"run_id = '{e.run_id}' and kind = 'column'")
        self._keep("fresh", fresh, hashed)
        self._keep("vanished", e.extracted, "unit_key", "WHERE kind = 'vanished'")
        self._keep("extracted", e.extracted, hashed, "WHERE kind = 'column'")
        # What should become of each table, and what did.
        self._db.execute(DECISIONS)

    def _keep(self, name: str, rows: pa.Table, fields: str, tail: str = "") -> None:
        self._db.register("arrived", rows)
        self._db.execute(f"CREATE TABLE {name} AS SELECT {fields} FROM arrived {tail}")
        self._db.unregister("arrived")

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
        old = e.reader.data_files(e.table, e.base) if e.base is not None else {}
        new = e.reader.data_files(e.table, e.staged)
        added = sum(count for path, count in new.items() if path not in old)
        ours = self._one("SELECT count(*) FROM fresh") + self._one(
            f"SELECT count(*) FROM after_units WHERE run_id = '{e.run_id}'"
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
        e = self._evidence
        for name, snapshot in (("whole_before", e.base), ("whole_after", e.staged)):
            fields = ["kind", "unit_key", "qualified_name", "entity"]
            rows = e.reader.read(e.table, snapshot, fields) if snapshot is not None else e.units.select(fields).slice(0, 0)
            self._keep(name, rows, "unit_key, hash(kind, qualified_name, entity) AS content")
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
CREATE TABLE judged AS
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


def failed(results: Iterable[CheckResult]) -> list[CheckResult]:
    return [result for result in results if not result.passed]
