"""The check of a written diff: what a consumer will read agrees with the staged state."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as read_json

from tidemark.catalog.checks import FIRST, Evidence, files_of, rows_of
from tidemark.checks import CheckResult
from tidemark.lake import no_rows, quoted
from tidemark.store import ObjectInfo, ObjectStore

NAME = "diff_agrees_with_state"
READERS = 2
NAMES = pa.schema([("kind", pa.string()), ("qualified_name", pa.string())])
# Of an entity only its name is looked at.
ENTITY = read_json.ParseOptions(
    explicit_schema=pa.schema([("attributes", pa.struct([("qualifiedName", pa.string())]))]),
    unexpected_field_behavior="ignore",
)


def names_below(store: ObjectStore, *prefixes: str) -> Iterator[pa.Table]:
    """File kind and qualified name of every entity in the JSON files below some prefixes, a file at a time."""

    def names(info: ObjectInfo) -> pa.Table:
        kind = info.key.rpartition("/")[2].rpartition("_")[0]
        # One block: an entity may be as long as the text of a view.
        how = read_json.ReadOptions(use_threads=False, block_size=max(info.size, 1))
        attributes = read_json.read_json(pa.py_buffer(store.read(info.key)), how, ENTITY)["attributes"]
        found = pc.struct_field(attributes, "qualifiedName")
        return pa.table({"kind": pa.repeat(kind, len(found)), "qualified_name": found}, NAMES)

    files = iter([info for prefix in prefixes for info in store.list(prefix + "/")])
    with ThreadPoolExecutor(READERS, thread_name_prefix="diff-check") as pool:
        # Only as many are read ahead as there are readers: what is read and not yet taken is held.
        coming = deque(pool.submit(names, info) for info in islice(files, READERS))
        while coming:
            found = coming.popleft().result()
            coming.extend(pool.submit(names, info) for info in islice(files, 1))
            yield found


def diff_agrees_with_state(evidence: Evidence, store: ObjectStore, root: str) -> CheckResult:
    """Fresh entities of the state = table and column of the diff; what the state lost = delete."""
    comparison = Comparison(evidence, store, root)
    fresh, gone, faults, first = comparison.by(HASHED)
    if faults:
        fresh, gone, faults, first = comparison.by(SPELLED)  # to name them
    good = f"{fresh} fresh and {gone} deleted entities agree with the state"
    bad = f"{faults} entities of the diff do not agree with the state"
    return CheckResult(
        NAME, not faults, bad if faults else good, {"faults": faults, "fresh": fresh, "deleted": gone, "first": first}
    )


# Names are compared by their hashes, which fit into memory where a million names may not, and only spelled out to be shown.
HASHED = "hash(qualified_name) AS qualified_name"
SPELLED = "qualified_name"


@dataclass(frozen=True)
class Comparison:
    """The names in a diff next to those of the two states it lies between."""

    evidence: Evidence
    store: ObjectStore
    root: str

    def by(self, name: str) -> tuple[int, int, int, list[str]]:
        """How many are fresh, gone and wrong, and the first wrong ones."""
        e, touched = self.evidence, self.evidence.labels.touched
        with e.reader.connect() as db:
            for folder, below in {"diff_fresh": ("table", "column"), "diff_gone": ("delete",)}.items():
                db.execute(f"CREATE TEMP TABLE {folder} AS SELECT kind, {name} FROM {no_rows(NAMES)}")
                for names in names_below(self.store, *(f"{self.root}/{each}" for each in below)):
                    db.register("arrived", names)
                    db.execute(f"INSERT INTO {folder} SELECT kind, {name} FROM arrived")
                    db.unregister("arrived")
            db.register("touched", pa.table({"unit_key": touched}))
            for state, snapshot in (("before", e.base), ("after", e.staged)):
                rows = rows_of(files_of(e, snapshot) if len(touched) else None)
                fields = f"kind, {name}, run_id = {quoted(e.run_id)} AS ours"
                db.execute(
                    f"CREATE TEMP TABLE {state} AS SELECT {fields} FROM "
                    f"(SELECT kind, qualified_name, run_id, unit_key FROM {rows}) SEMI JOIN touched USING (unit_key)"
                )
            db.execute(WANTED)
            query = "SELECT (SELECT count(*) FROM diff_fresh), (SELECT count(*) FROM diff_gone), count(*) FROM faults"
            fresh, gone, faults = db.execute(query).fetchall()[0]
            shown = db.execute(f"SELECT what, kind, qualified_name FROM faults ORDER BY ALL LIMIT {FIRST}").fetchall()
        return fresh, gone, faults, [" · ".join(map(str, row)) for row in shown]


WANTED = """
CREATE TEMP TABLE faults AS
WITH fresh AS (SELECT kind, qualified_name FROM after WHERE ours AND kind IN ('table', 'column')),
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
