"""Why a table is read or not."""

from typing import Any

from spark_code.catalog.run import plan_run
from spark_code.catalog.subject import CatalogSubject
from tidemark.catalog.names import parts_of
from tidemark.errors import UsageError

SIGNAL = ["kind", "qualified_name", "object_id", "digest", "run_id", "label"]


def explain_table(subject: CatalogSubject, name: str) -> dict[str, Any]:
    """Signal before and now, label, and the run that last read it."""
    plan, units = plan_run(subject, "explain")
    found = {row["qualified_name"]: row for row in units.to_pylist() if row["kind"] == "table"}
    wanted = [qualified for qualified in found if name in (qualified, ".".join(parts_of(qualified)[-2:]))]
    if not wanted:
        raise UsageError(
            f"{subject.connection.name}: no table '{name}' in scope, now or before. Give schema.table or a qualified name."
        )
    now = found[wanted[0]]
    before: dict[str, Any] = {}
    if plan.base_snapshot is not None:
        rows = subject.lake.reader.read(subject.layout.table, plan.base_snapshot, SIGNAL, "kind = 'table'").to_pylist()
        before = next((row for row in rows if row["qualified_name"] == now["qualified_name"]), {})
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
