"""A program that follows the documented layout: it applies the diffs of all runs that count, one after the other."""

import json
from typing import Any

from tests.catalog.harness import Catalog
from tidemark.control.runs import COUNTING

Entities = dict[tuple[str, str], dict[str, Any]]


class Consumer:
    """Knows `runs/{run id}/incremental-diff/` and the order of runs, and nothing else."""

    def __init__(self) -> None:
        self.applied: set[str] = set()
        self.entities: Entities = {}

    def copy(self) -> "Consumer":
        other = Consumer()
        other.applied, other.entities = set(self.applied), dict(self.entities)
        return other

    def follow(self, catalog: Catalog) -> None:
        runs = catalog.subject.control.runs.history(catalog.subject.address)
        for run in reversed(runs):
            if run.status in COUNTING and run.run_id not in self.applied:
                self._apply(catalog, catalog.subject.layout.diff(run.run_id))
                self.applied.add(run.run_id)

    def _apply(self, catalog: Catalog, diff: str) -> None:
        for entity in entities_below(catalog, f"{diff}/delete"):
            self.entities.pop(name_of(entity), None)
        for kind in ("database", "schema", "table", "column"):
            for entity in entities_below(catalog, f"{diff}/{kind}"):
                self.entities[name_of(entity)] = plain(entity)


def entities_below(catalog: Catalog, folder: str) -> list[dict[str, Any]]:
    store = catalog.platform.store
    return [json.loads(line) for info in store.list(folder) for line in store.read(info.key).splitlines()]


def by_name(entities: list[dict[str, Any]]) -> Entities:
    return {name_of(entity): plain(entity) for entity in entities}


def name_of(entity: dict[str, Any]) -> tuple[str, str]:
    kind = entity["typeName"] if entity["typeName"] in ("Database", "Schema", "Column") else "Table"
    return kind, entity["attributes"]["qualifiedName"]


def plain(entity: dict[str, Any]) -> dict[str, Any]:
    attributes = {key: value for key, value in entity["attributes"].items() if key != "incremental_state"}
    return {"typeName": entity["typeName"], "attributes": attributes}
