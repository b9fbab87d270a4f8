"""The check of a written diff: what a consumer will read agrees with the staged state."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as read_json

from tidemark.catalog.checks import FIRST, Evidence, files_of, rows_of
from tidemark.catalog.rows import CARRIED
from tidemark.checks import CheckResult
from tidemark.store import ObjectInfo, ObjectStore

NAME = "diff_agrees_with_state"
READERS = 2
NAMES = pa.schema([("kind", pa.string()), ("qualified_name", pa.string())])
# Of an entity only its name is looked at.
ENTITY = read_json.ParseOptions(
    explicit_schema=pa.schema([("attributes", pa.struct([("qualifiedName", pa.string())]))]),
    unexpected_field_behavior="ignore",
)


def names_below(store: ObjectStore, *prefixes: str) -> pa.Table:
    """File kind and qualified name of every entity in the JSON files below some prefixes."""

    def names(info: ObjectInfo) -> pa.Table:
        kind = info.key.rpartition("/")[2].rpartition("_")[0]
        # One block: an entity may be as long as the text of a view.
        how = read_json.ReadOptions(use_threads=False, block_size=max(info.size, 1))
        attributes = read_json.read_json(pa.py_buffer(store.read(info.key)), how, ENTITY)["attributes"]
        found = pc.struct_field(attributes, "qualifiedName")
        return pa.table({"kind": pa.repeat(kind, len(found)), "qualified_name": found})

    files = [info for prefix in prefixes for info in store.list(prefix + "/")]
    with ThreadPoolExecutor(READERS, thread_name_prefix="diff-check") as pool:
        return pa.concat_tables([NAMES.empty_table(), *pool.map(names, files)])


def diff_agrees_with_state(evidence: Evidence, store: ObjectStore, root: str) -> CheckResult:
    """Fresh entities of the state = table and column of the diff; what the state lost = delete."""
    touched = evidence.units.filter(pc.invert(pc.is_in(evidence.units["label"], pa.array(sorted(CARRIED)))))
    with evidence.reader.connect() as db:
        db.register("diff_fresh", names_below(store, f"{root}/table", f"{root}/column"))
        db.register("diff_gone", names_below(store, f"{root}/delete"))
        db.register("touched", touched.select(["unit_key"]))
        for name, snapshot in (("before", evidence.base), ("after", evidence.staged)):
            rows = rows_of(files_of(evidence, snapshot) if touched.num_rows else None)
            fields = "kind, qualified_name, run_id, unit_key"
            db.execute(f"CREATE TEMP TABLE {name} AS SELECT {fields} FROM {rows} SEMI JOIN touched USING (unit_key)")
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
WITH fresh AS (SELECT kind, qualified_name FROM after WHERE run_id = $run AND kind IN ('table', 'column')),
     gone AS (SELECT kind, qualified_name FROM before ANTI JOIN after USING (kind, qualified_name)),
     balance AS (
        SELECT 'fresh' AS part, *, 1 AS n FROM fresh UNION ALL SELECT 'fresh', *, -1 FROM diff_fresh
        UNION ALL SELECT 'gone', *, 1 FROM gone UNION ALL SELECT 'gone', *, -1 FROM diff_gone)
SELECT CASE WHEN part = 'fresh' AND sum(n) > 0 THEN 'missing in the diff'
            WHEN part = 'fresh' THEN 'in the diff, not fresh in the state'
            WHEN sum(n) > 0 THEN 'missing in delete/'
            ELSE 'in delete/, still in the state' END AS what, kind, qualified_name
FROM balance GROUP BY part, kind, qualified_name HAVING sum(n) <> 0
"""
