"""The check of a written diff: what a consumer will read agrees with the staged state."""

from collections.abc import Iterator
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions

from tidemark.catalog.checks import FIRST, CheckResult, Evidence
from tidemark.catalog.rows import CARRIED
from tidemark.store import ObjectStore

NAME = "diff_agrees_with_state"
FEW = 1_000


def entities_below(store: ObjectStore, prefix: str) -> Iterator[tuple[str, str]]:
    """File kind and qualified name of every entity in the JSON files below a prefix."""
    for info in store.list(prefix + "/"):
        kind = info.key.rpartition("/")[2].rpartition("_")[0]
        for line in store.read(info.key).splitlines():
            yield kind, orjson.loads(line)["attributes"]["qualifiedName"]


def _names(store: ObjectStore, *prefixes: str) -> pa.Table:
    found = [pair for prefix in prefixes for pair in entities_below(store, prefix)]
    return pa.table(
        {
            "kind": pa.array([k for k, _ in found], pa.string()),
            "qualified_name": pa.array([n for _, n in found], pa.string()),
        }
    )


def diff_agrees_with_state(evidence: Evidence, store: ObjectStore, root: str) -> CheckResult:
    """Fresh entities of the state = table and column of the diff; what the state lost = delete."""
    is_in: Any = expressions.In  # its arguments are unknown to mypy
    touched = evidence.units.filter(pc.invert(pc.is_in(evidence.units["label"], pa.array(sorted(CARRIED)))))
    keys = touched["unit_key"].to_pylist()
    fields = ["kind", "qualified_name", "run_id", "unit_key"]
    empty = pa.schema([*((name, pa.string()) for name in fields[:3]), ("unit_key", pa.int64())]).empty_table()

    def rows(snapshot: int | None) -> pa.Table:
        if snapshot is None or not keys:
            return empty
        # A filter on many keys costs more than it saves; DuckDB keeps the touched ones either way.
        few = is_in("unit_key", keys) if len(keys) <= FEW else None
        return evidence.reader.read(evidence.table, snapshot, fields, few)

    with duckdb.connect(config={"threads": 2}) as db:
        db.register("diff_fresh", _names(store, f"{root}/table", f"{root}/column"))
        db.register("diff_gone", _names(store, f"{root}/delete"))
        db.register("touched", touched.select(["unit_key"]))
        db.register("all_before", rows(evidence.base))
        db.register("all_after", rows(evidence.staged))
        db.execute(WANTED, {"run": evidence.run_id})
        found = db.execute("SELECT what, kind, qualified_name FROM faults ORDER BY ALL").fetchall()
        counts = db.execute("SELECT (SELECT count(*) FROM diff_fresh), (SELECT count(*) FROM diff_gone)").fetchall()
    fresh, gone = counts[0]
    good = f"{fresh} fresh and {gone} deleted entities agree with the state"
    bad = f"{len(found)} entities of the diff do not agree with the state"
    facts = {"faults": len(found), "fresh": fresh, "deleted": gone, "first": [" · ".join(row) for row in found[:FIRST]]}
    return CheckResult(NAME, not found, bad if found else good, facts)


WANTED = """
CREATE TEMP TABLE faults AS
WITH before AS (FROM all_before SEMI JOIN touched USING (unit_key)),
     after AS (FROM all_after SEMI JOIN touched USING (unit_key)),
     fresh AS (SELECT kind, qualified_name FROM after WHERE run_id = $run AND kind IN ('table', 'column')),
     gone AS (SELECT kind, qualified_name FROM before EXCEPT SELECT kind, qualified_name FROM after)
SELECT 'missing in the diff' AS what, * FROM (FROM fresh EXCEPT ALL FROM diff_fresh)
UNION ALL SELECT 'in the diff, not fresh in the state', * FROM (FROM diff_fresh EXCEPT ALL FROM fresh)
UNION ALL SELECT 'missing in delete/', * FROM (FROM gone EXCEPT ALL FROM diff_gone)
UNION ALL SELECT 'in delete/, still in the state', * FROM (FROM diff_gone EXCEPT ALL FROM gone)
"""
