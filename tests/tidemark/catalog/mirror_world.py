"""A lake with three states of one connection, and its mirror. No Spark: pyiceberg writes the lake."""

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.manifest import Manifest
from tidemark.catalog.mirror import Mirror
from tidemark.catalog.rows import Label, Row, as_table
from tidemark.clock import SystemClock
from tidemark.lake import LakeReader, LakeSettings
from tidemark.store import ObjectStore

COLUMNS = 3
# Units of each state by the run that last read them. Numbers are keys: the second state needs more files than the first.
STATES = {
    "run_1": {key: "run_1" for key in range(1, 7)},
    "run_2": {**{key: "run_1" for key in range(1, 7)}, 2: "run_2", **{key: "run_2" for key in range(11, 15)}},
    "run_3": {**{key: "run_1" for key in range(1, 6)}, 2: "run_2", 3: "run_3"},
}
STATES["run_4"] = {**STATES["run_2"], 3: "run_4"}
CHANGED = {"run_2": [2, *range(11, 15)], "run_3": [3, 6, *range(11, 15)], "run_4": [3]}


@dataclass(frozen=True)
class World:
    store: ObjectStore
    lake: str
    workers: int = 1

    @property
    def layout(self) -> CatalogLayout:
        return CatalogLayout("sqlite", "1700000000")

    @property
    def reader(self) -> LakeReader:
        folder = Path(self.lake)
        settings = {"type": "sql", "uri": f"sqlite:///{folder}/lake.db", "warehouse": f"file://{folder}/lake"}
        return LakeReader(LakeSettings(settings))

    @property
    def mirror(self) -> Mirror:
        return Mirror(self.reader, self.store, self.layout, SystemClock(), 4, self.workers)

    def make_lake(self) -> None:
        Path(self.lake, "lake").mkdir(parents=True)
        catalog = self.reader.catalog
        catalog.create_namespace("catalog")
        table = catalog.create_table(self.layout.table, as_table([]).schema)
        for number, state in enumerate(STATES.values()):
            rows = as_table(row for key, run in state.items() for row in rows_of(key, run))
            (table.overwrite if number else table.append)(rows)

    def snapshot(self, run_id: str) -> int:
        table = self.reader.table(self.layout.table)
        assert table is not None
        made = [s.snapshot_id for s in table.snapshots() if s.summary and s.summary.operation.value != "delete"]
        return made[list(STATES).index(run_id)]

    # --- what runs do with the mirror --------------------------------------------------------------------------------

    def start_again(self, run_id: str = "run_1") -> None:
        self.store.delete_prefix(self.layout.current_state)
        self.settle(run_id)

    def settle(self, run_id: str = "run_1") -> Manifest:
        """The mirror shows this state, and a later run that changed nothing has settled its labels."""
        self.bring_to(run_id)
        return self.mirror.bring_to(self.layout.table, self.snapshot(run_id), "unchanged", np.array([], np.int64))

    def bring_to(self, run_id: str, *, increment: bool = False) -> Manifest:
        changed = np.array(CHANGED[run_id], np.int64) if increment else None
        return self.mirror.bring_to(self.layout.table, self.snapshot(run_id), run_id, changed)

    # --- looking -----------------------------------------------------------------------------------------------------

    def objects(self) -> dict[str, tuple[str, bytes]]:
        """Every object of the mirror with etag and content."""
        found = {}
        for info in self.store.list(self.layout.current_state):
            held = self.store.find(info.key)
            assert held is not None
            found[info.key.removeprefix(self.layout.current_state + "/")] = (held.etag, bytes(held.body))
        return found

    def faults(self) -> list[str]:
        """What a reader of the documented layout would object to; nothing while there is no manifest."""
        objects = {path: body for path, (_, body) in self.objects().items()}
        text = objects.pop("_manifest.json", None)
        if text is None:
            return []
        files = {f"{file['kind']}/{file['kind']}_{file['number']}.json": file for file in json.loads(text)["files"]}
        altered = [path for path in files if hashlib.sha256(objects.get(path, b"")).hexdigest() != files[path]["sha256"]]
        return [f"altered {path}" for path in altered] + [f"stray {path}" for path in objects.keys() - files.keys()]

    def shown(self) -> list[tuple[str, str, int, str, str]]:
        """Every entity that the mirror shows: kind, unit, ordinal, the run that read it, label."""
        found = []
        for path, (_, body) in self.objects().items():
            for line in body.splitlines() if path != "_manifest.json" else ():
                a = json.loads(line)["attributes"]
                found.append((path.partition("/")[0], a["unit"], a["ordinal"], a["read"], a["incremental_state"]))
        return sorted(found)

    def expected(self, run_id: str) -> list[tuple[str, str, int, str, str]]:
        """What the mirror should show, seen from the run."""
        return sorted(
            (row.kind, row.unit, row.ordinal, read_by, row.label if read_by == run_id else Label.NO_CHANGE)
            for key, read_by in STATES.get(run_id, STATES["run_1"]).items()
            for row in rows_of(key, read_by)
        )


def rows_of(key: int, run: str) -> list[Row]:
    label = Label.CREATED if run == "run_1" else Label.UPDATED
    return [
        Row(kind, key, ordinal, f"{key}/{ordinal}", str(key), None, None, label, run, entity(key, ordinal, run))
        for kind, ordinal in [("table", 0), *(("column", number) for number in range(1, COLUMNS + 1))]
    ]


def entity(key: int, ordinal: int, run: str) -> str:
    return json.dumps(
        {"typeName": "x", "attributes": {"unit": str(key), "ordinal": ordinal, "read": run}}, separators=(",", ":")
    )


def main() -> None:
    """A process of its own that does what each line says: `RUN [increment]`, with a fault point to stop at and a gate."""
    import os
    import pickle

    from tidemark.errors import TidemarkError

    world: World = pickle.loads(bytes.fromhex(sys.argv[1]))
    for line in sys.stdin:
        run_id, increment, os.environ["TIDEMARK_FAULT"], os.environ["TIDEMARK_FAULT_GATE"] = line.split()
        try:
            world.bring_to(run_id, increment=increment == "increment")
            answer = "done"
        except TidemarkError as error:
            answer = f"{type(error).__name__}: {error}"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    from tests.tidemark.catalog import mirror_world

    mirror_world.main()
