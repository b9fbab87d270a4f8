"""Writes the JSON mirror from a snapshot: only the files that changed, several at a time. No Spark."""

import hashlib
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.catalog.chunks import LOWEST, ChunkFile, KeyCounts, place, touched
from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.manifest import Manifest, damaged_files, read_manifest, settle_file, stale_keys
from tidemark.catalog.rows import TAIL, Kind, Label
from tidemark.clock import Clock
from tidemark.faults import fault_point
from tidemark.lake import LakeReader
from tidemark.store import ObjectStore

Keys = npt.NDArray[np.int64]

FIELDS = ["unit_key", "ordinal", "label", "run_id", "entity"]
# What is held in memory at once: some 700 MB of columns.
ROWS_AT_ONCE = 1_000_000
ROWS_A_PIECE = 100_000


@dataclass(frozen=True)
class Mirror:
    """The mirror of one connection."""

    reader: LakeReader
    store: ObjectStore
    layout: CatalogLayout
    clock: Clock
    chunk_size: int
    workers: int

    def bring_to(self, table: str, snapshot: int, run_id: str, changed: Keys | None) -> Manifest:
        """Makes the mirror show `snapshot` with the labels of `run_id`.

        `changed` are the keys of the units that this snapshot changed against what the mirror shows now; None: all of it
        is written anew. The manifest goes first and comes back last, so that no reader takes a mixture for a state.
        """
        found = read_manifest(self.store, self.layout)
        before = found if changed is not None and found and found.chunk_size == self.chunk_size else None
        damaged = {file.path for file in damaged_files(self.store, self.layout, before)} if before else set()
        fault_point("mirror.before_manifest_delete")
        self.store.delete(self.layout.manifest)
        fault_point("mirror.after_manifest_delete")
        wanted = self._wanted(table, snapshot, before, changed)
        stale = stale_content(wanted, before, changed, damaged)
        files = self._write_files(table, snapshot, run_id, wanted, stale)
        self.store.delete(*stale_keys(self.store, self.layout, files))
        manifest = Manifest(
            run_id=run_id,
            snapshot_id=snapshot,
            written_at=self.clock.now(),
            chunk_size=self.chunk_size,
            counts={kind.value: sum(file.rows for file in files if file.kind == kind) for kind in Kind},
            files=files,
        )
        fault_point("mirror.before_manifest_put")
        self.store.put(self.layout.manifest, (manifest.model_dump_json(indent=2) + "\n").encode())
        fault_point("mirror.after_manifest_put")
        return manifest

    def _wanted(self, table: str, snapshot: int, before: Manifest | None, changed: Keys | None) -> list[ChunkFile]:
        """Every file that the mirror should have, with the rows it should hold."""
        if before is not None and changed is not None and not len(changed):
            return before.files
        wanted = []
        for kind in Kind:
            keys = self.reader.read(table, snapshot, ["unit_key"], f"kind = '{kind}'")
            counts = KeyCounts.of(keys["unit_key"].to_numpy())
            wanted += place(kind, counts, self.chunk_size, before.files if before else [])
        return wanted

    def _write_files(
        self, table: str, snapshot: int, run_id: str, wanted: list[ChunkFile], stale: set[str]
    ) -> list[ChunkFile]:
        written: dict[str, ChunkFile] = {}
        with ThreadPoolExecutor(self.workers, thread_name_prefix="mirror") as pool:
            for file, settled in zip(wanted, pool.map(lambda file: self._settle(file, stale), wanted), strict=True):
                if settled is not None:
                    written[file.path] = settled
            for kind in Kind:
                files = [file for file in wanted if file.kind == kind]
                for group in grouped(files, written.keys()):
                    rows = self.reader.read(table, snapshot, FIELDS, group.condition(kind))
                    for file in pool.map(lambda job: self._write(run_id, *job), split(rows, group)):
                        written[file.path] = file
        return [written[file.path] for file in wanted]

    def _settle(self, file: ChunkFile, stale: set[str]) -> ChunkFile | None:
        """A file whose content is still right keeps it, its labels settled; None: it must come from the lake."""
        if file.path in stale:
            return None
        return settle_file(self.store, self.layout, file) if file.changed else file

    def _write(self, run_id: str, file: ChunkFile, fetch: Callable[[], pa.Table]) -> ChunkFile:
        fault_point("mirror.before_file")
        rows = fetch()
        pieces = [lines(rows.slice(start, ROWS_A_PIECE), run_id) for start in range(0, rows.num_rows, ROWS_A_PIECE)]
        body = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
        self.store.put(f"{self.layout.current_state}/{file.path}", body)
        fault_point("mirror.after_file")
        changed = pc.sum(pc.equal(rows["run_id"], run_id)).as_py() or 0
        told = {
            "rows": rows.num_rows,
            "changed": changed,
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        return file.model_copy(update=told)


@dataclass(frozen=True)
class Group:
    """Neighbouring files that are read from the lake together: keys from `first` to below `end`."""

    files: list[ChunkFile]
    # Where each file's range begins, and where the last one's ends.
    bounds: list[int | None]

    def condition(self, kind: Kind) -> str:
        where = f"kind = '{kind}'"
        # A bound that excludes nothing would still cost a copy of every row.
        if self.bounds[0] != LOWEST:
            where += f" and unit_key >= {self.bounds[0]}"
        return where if self.bounds[-1] is None else f"{where} and unit_key < {self.bounds[-1]}"


def grouped(files: list[ChunkFile], done: Container[str]) -> Iterator[Group]:
    """The files that are not done, neighbours together, at most ROWS_AT_ONCE rows a group."""
    ends = [*(file.first_key for file in files[1:]), None]
    waiting: list[tuple[ChunkFile, int | None]] = []
    for file, end in zip(files, ends, strict=False):
        is_done = file.path in done
        full = sum(each.rows for each, _ in waiting) + file.rows > ROWS_AT_ONCE
        if waiting and (is_done or full):
            yield _group(waiting)
            waiting = []
        if not is_done:
            waiting.append((file, end))
    if waiting:
        yield _group(waiting)


def _group(members: list[tuple[ChunkFile, int | None]]) -> Group:
    return Group([file for file, _ in members], [*(file.first_key for file, _ in members), members[-1][1]])


def split(rows: pa.Table, group: Group) -> Iterator[tuple[ChunkFile, Callable[[], pa.Table]]]:
    """Each file of the group with a way to get its rows in order: who writes them copies them, one file at a time."""
    keys = rows["unit_key"].to_numpy()
    order = np.lexsort((rows["ordinal"].to_numpy(), keys))
    in_order = bool((order[1:] > order[:-1]).all())
    ordered = keys if in_order else keys[order]
    cuts = [0, *(int(np.searchsorted(ordered, file.first_key)) for file in group.files[1:]), len(keys)]
    for file, (start, end) in zip(group.files, pairwise(cuts), strict=True):
        yield file, partial(in_place, rows, order[start:end], in_order)


def in_place(rows: pa.Table, order: npt.NDArray[np.int64], in_order: bool) -> pa.Table:
    """The rows of one file. They lie in a few stretches of the table, so only those are copied."""
    if in_order:
        return rows.slice(int(order[0]), len(order))
    breaks = np.flatnonzero(np.diff(np.sort(order)) != 1)
    held = np.sort(order)
    starts, ends = held[np.r_[0, breaks + 1]], held[np.r_[breaks, len(held) - 1]]
    stretches = [rows.slice(int(start), int(end - start + 1)) for start, end in zip(starts, ends, strict=True)]
    near = pa.concat_tables(stretches).combine_chunks()
    return near.take(pa.array(np.searchsorted(held, order)))


def stale_content(wanted: list[ChunkFile], before: Manifest | None, changed: Keys | None, damaged: set[str]) -> set[str]:
    """Paths whose content must come from the lake."""
    if before is None or changed is None:
        return {file.path for file in wanted}
    by_kind = ([file for file in wanted if file.kind == kind] for kind in Kind)
    hit: set[str] = set().union(*(touched(files, changed) for files in by_kind))
    return damaged | hit | {file.path for file in wanted if not file.sha256}


def lines(rows: pa.Table, run_id: str) -> memoryview:
    """One line of JSON an entity, labelled as seen from a run: a later run than its own sees NO CHANGE."""
    label = pc.if_else(pc.equal(rows["run_id"], run_id), rows["label"], Label.NO_CHANGE.value)
    head = pc.binary_slice(rows["entity"].cast(pa.binary()), 0, -len(TAIL))
    tail = f'"{TAIL}\n'.encode()
    joined = pc.binary_join_element_wise(head, b',"incremental_state":"', label.cast(pa.binary()), tail, b"")
    return text_of(joined.combine_chunks())


def text_of(values: pa.Array) -> memoryview:
    """The bytes of an array of text, which lie one after the other already."""
    if not len(values):
        return memoryview(b"")
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return memoryview(values.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
