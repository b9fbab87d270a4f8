"""Writes the JSON mirror from a snapshot: one Spark task a file, each reading only its range of keys."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_code.lake import Lake
from spark_code.lines import write_lines
from tidemark.catalog.chunks import ChunkFile, KeyCounts, place, touched
from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.mirror import Manifest, damaged_files, read_manifest, settle_file, stale_keys
from tidemark.catalog.rows import TAIL, Kind, Label
from tidemark.clock import Clock
from tidemark.faults import fault_point
from tidemark.store import ObjectStore

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Mirror:
    """The mirror of one connection."""

    lake: Lake
    store: ObjectStore
    layout: CatalogLayout
    clock: Clock
    chunk_size: int
    workers: int

    def bring_to(self, table: str, snapshot: int, run_id: str, changed: Keys | None) -> Manifest:
        """Makes the mirror show `snapshot` with the labels of `run_id`.

        `changed` are the keys of the units that this snapshot changed against what the mirror shows now; None: all of it is
        written anew. The manifest goes first and comes back last, so that no reader takes a mixture for a state.
        """
        found = read_manifest(self.store, self.layout)
        before = found if changed is not None and found and found.chunk_size == self.chunk_size else None
        damaged = {file.path for file in damaged_files(self.store, self.layout, before)} if before else set()
        fault_point("mirror.before_manifest_delete")
        self.store.delete(self.layout.manifest)
        fault_point("mirror.after_manifest_delete")
        wanted = self._wanted(table, snapshot, before, changed)
        stale = self._stale_content(wanted, before, changed, damaged)
        with ThreadPoolExecutor(self.workers, thread_name_prefix="mirror") as pool:
            files = list(pool.map(lambda file: self._bring_file(table, snapshot, run_id, file, wanted, stale), wanted))
        gone = stale_keys(self.store, self.layout, files)
        self.store.delete(*gone)
        counts = {kind.value: sum(file.rows for file in files if file.kind == kind) for kind in Kind}
        manifest = Manifest(
            run_id=run_id,
            snapshot_id=snapshot,
            written_at=self.clock.now(),
            chunk_size=self.chunk_size,
            counts=counts,
            files=files,
        )
        fault_point("mirror.before_manifest_put")
        self.store.put(self.layout.manifest, (manifest.model_dump_json(indent=2) + "\n").encode())
        fault_point("mirror.after_manifest_put")
        return manifest

    def _wanted(self, table: str, snapshot: int, before: Manifest | None, changed: Keys | None) -> list[ChunkFile]:
        if before is not None and changed is not None and not len(changed):
            return before.files
        keys = self.lake.reader.read(table, snapshot, ["kind", "unit_key"])
        counts = {kind: KeyCounts.of(keys["unit_key"].filter(pc.equal(keys["kind"], kind)).to_numpy()) for kind in Kind}
        previous = before.files if before else []
        return [file for kind in Kind for file in place(kind, counts[kind], self.chunk_size, previous)]

    def _stale_content(
        self, wanted: list[ChunkFile], before: Manifest | None, changed: Keys | None, damaged: set[str]
    ) -> set[str]:
        """Paths whose content must come from the lake."""
        if before is None or changed is None:
            return {file.path for file in wanted}
        by_kind = [[file for file in wanted if file.kind == kind] for kind in Kind]
        hit = set().union(*(touched(files, changed) for files in by_kind))
        return damaged | hit | {file.path for file in wanted if not file.sha256}

    def _bring_file(
        self, table: str, snapshot: int, run_id: str, file: ChunkFile, wanted: list[ChunkFile], stale: set[str]
    ) -> ChunkFile:
        if file.path not in stale:
            brought = settle_file(self.store, self.layout, file) if file.changed else file
            if brought is not None:
                return brought
        fault_point("mirror.before_file")
        ends = sorted(
            other.first_key for other in wanted if other.kind == file.kind and other.first_key > file.first_key
        )
        rows = entities_between(self.lake.table(table, snapshot), file.kind, file.first_key, ends[0] if ends else None)
        written = write_lines(labelled(rows, run_id), self.store, f"{self.layout.current_state}/{file.path}")
        fault_point("mirror.after_file")
        return file.model_copy(update=written)


def entities_between(state: DataFrame, kind: str, first_key: int, end_key: int | None) -> DataFrame:
    """The rows of one kind in one half-open range of keys."""
    below_end = f.lit(True) if end_key is None else f.col("unit_key") < end_key
    return state.where((f.col("kind") == kind) & (f.col("unit_key") >= first_key) & below_end)


def label_as_of(run_id: str) -> Column:
    """A row keeps the label of the run that read it; seen from any later run it is NO CHANGE."""
    return f.when(f.col("run_id") == run_id, f.col("label")).otherwise(f.lit(Label.NO_CHANGE.value))


def labelled(rows: DataFrame, run_id: str) -> DataFrame:
    """One line of JSON an entity, with its label put in, in the order of the file."""
    label = label_as_of(run_id)
    head = f.expr(f"left(entity, length(entity) - {len(TAIL)})")
    line = f.concat(head, f.lit(',"incremental_state":"'), label, f.lit('"' + TAIL + "\n"))
    return (
        rows.select(
            "unit_key", "ordinal", "qualified_name", line.alias("line"), (label != Label.NO_CHANGE).alias("changed")
        )
        .coalesce(1)
        .sortWithinPartitions("unit_key", "ordinal", "qualified_name")
        .select("line", "changed")
    )
