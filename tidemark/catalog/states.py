"""Published and staged states as a reader sees them, and how two of them differ. No Spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow.compute as pc

from tidemark.catalog.rows import STATE_SCHEMA, Kind, Label, with_label
from tidemark.lake import LakeReader, no_rows


def entities(reader: LakeReader, table: str, snapshot: int, run_id: str, kind: Kind | None = None) -> Iterator[str]:
    """One JSON entity a line, sorted by qualified name, labelled as seen from a run."""
    where = f"kind = '{kind}'" if kind else "true"
    rows = reader.read(table, snapshot, ["qualified_name", "kind", "label", "run_id", "entity"], where)
    order = pc.sort_indices(rows, [("qualified_name", "ascending"), ("kind", "ascending")])
    for batch in rows.take(order).to_batches():
        fields = (batch[name].to_pylist() for name in ("label", "run_id", "entity"))
        for label, of_run, entity in zip(*fields, strict=True):
            yield with_label(entity, label if of_run == run_id else Label.NO_CHANGE)


@dataclass(frozen=True)
class Change:
    """An entity that two states do not agree on."""

    what: str  # added, removed, changed
    kind: str
    name: str
    # Attribute → (before, now); only for changed ones.
    attributes: dict[str, tuple[Any, Any]]


def changes_between(reader: LakeReader, table: str, before: int | None, now: int | None) -> list[Change]:
    """What differs between two snapshots, entity by entity, sorted by name."""
    if before == now:
        return []

    def rows(snapshot: int | None) -> str:
        return no_rows(STATE_SCHEMA) if snapshot is None else reader.files(table, snapshot).sql

    with reader.connect() as db:
        differing = db.execute(
            f"""SELECT kind, qualified_name, old.entity, new.entity
                FROM {rows(before)} AS old FULL JOIN {rows(now)} AS new USING (kind, qualified_name)
                WHERE old.entity IS DISTINCT FROM new.entity ORDER BY qualified_name, kind"""
        ).fetchall()
    return [_change(*row) for row in differing]


def _change(kind: str, name: str, old: str | None, new: str | None) -> Change:
    if old is None or new is None:
        return Change("added" if old is None else "removed", kind, name, {})
    before, now = (orjson.loads(text)["attributes"] for text in (old, new))
    differing = {key: (before.get(key), now.get(key)) for key in sorted({*before, *now}) if before.get(key) != now.get(key)}
    return Change("changed", kind, name, differing)
