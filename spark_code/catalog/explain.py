"""What a run would read now, and why a table is read or not."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_code.catalog.run import plan_run
from spark_code.catalog.subject import CatalogSubject
from tidemark.catalog.names import parts_of
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.rows import Label
from tidemark.errors import UsageError
from tidemark.lake import quoted

SIGNAL = ["kind", "qualified_name", "object_id", "digest", "run_id", "label"]


def changing_units(subject: CatalogSubject) -> tuple[RunPlan, list[dict[str, str]]]:
    """What a run would do now, and kind, name and label of every unit that is not as it was, by name."""
    changing: list[pa.Table] = []

    def keep(units: pa.Table) -> None:
        shown = units.select(["kind", "qualified_name", "label"])
        changing.append(shown.filter(pc.not_equal(shown["label"], Label.NO_CHANGE)))

    plan, _ = plan_run(subject, "plan", keep)
    rows = [row for units in changing for row in units.to_pylist()]
    return plan, sorted(rows, key=lambda row: row["qualified_name"])


def explain_table(subject: CatalogSubject, name: str) -> dict[str, Any]:
    """Signal before and now, label, and the run that last read it."""
    wanted: list[dict[str, Any]] = []

    def keep(units: pa.Table) -> None:
        names = units["qualified_name"].to_pylist()
        hits = [at for at, each in enumerate(names) if name in (each, ".".join(parts_of(each)[-2:]))]
        wanted.extend(row for row in units.take(pa.array(hits, pa.int64())).to_pylist() if row["kind"] == "table")

    plan, _ = plan_run(subject, "explain", keep)
    if not wanted:
        raise UsageError(
            f"{subject.connection.name}: no table '{name}' in scope, now or before. Give schema.table or a qualified name."
        )
    now = wanted[0]
    before: dict[str, Any] = {}
    if plan.base_snapshot is not None:
        this = f"kind = 'table' AND qualified_name = {quoted(now['qualified_name'])}"
        rows = subject.lake.reader.read(subject.layout.table, plan.base_snapshot, SIGNAL, this).to_pylist()
        before = next(iter(rows), {})
    gone = now["label"] in ("REMOVED", "UNKNOWN")
    return {
        "table": now["qualified_name"],
        "label": now["label"],
        "mode": str(plan.mode),
        "reason": str(plan.reason),
        "digest before": before.get("digest"),
        "digest now": None if gone else now["digest"],
        "object id before": before.get("object_id"),
        "object id now": None if gone else now["object_id"],
        "last read by run": before.get("run_id"),
    }
