"""Writes the JSON mirror from a snapshot: only the files that changed, several at a time, each by one query. No Spark."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

import duckdb
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


@dataclass(frozen=True)
class Range:
    """A file and the first key that belongs to the next one of its kind."""

    file: ChunkFile
    end: int | None

    @property
    def condition(self) -> str:
        bounds = [f"kind = '{self.file.kind}'"]
        if self.file.first_key != LOWEST:
            bounds.append(f"unit_key >= {self.file.first_key}")
        if self.end is not None:
            bounds.append(f"unit_key < {self.end}")
        return " AND ".join(bounds)


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
        rows = self.reader.files(table, snapshot).sql
        with self.reader.connect() as db:
            wanted = self._wanted(db, rows, before, changed)
            stale = stale_content(wanted, before, changed, damaged)
            with ThreadPoolExecutor(self.workers, thread_name_prefix="mirror") as pool:
                files = list(pool.map(lambda part: self._file(db, rows, run_id, part, stale), ranges(wanted)))
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

    def _wanted(
        self, db: duckdb.DuckDBPyConnection, rows: str, before: Manifest | None, changed: Keys | None
    ) -> list[ChunkFile]:
        """Every file that the mirror should have, with the rows it should hold."""
        if before is not None and changed is not None and not len(changed):
            return before.files
        found = db.execute(f"SELECT kind, unit_key, count(*) AS n FROM {rows} GROUP BY ALL ORDER BY ALL").fetchnumpy()
        wanted = []
        for kind in Kind:
            of_kind = found["kind"] == kind
            counts = KeyCounts(found["unit_key"][of_kind], found["n"][of_kind])
            wanted += place(kind, counts, self.chunk_size, before.files if before else [])
        return wanted

    def _file(self, db: duckdb.DuckDBPyConnection, rows: str, run_id: str, part: Range, stale: set[str]) -> ChunkFile:
        """The file as it shall be: left alone, with its labels settled, or written from the lake."""
        file = part.file
        if file.path not in stale:
            settled = settle_file(self.store, self.layout, file) if file.changed else file
            if settled is not None:
                return settled
        fault_point("mirror.before_file")
        with db.cursor() as own:
            lines = own.sql(LINES.format(rows=rows, part=part.condition), params={"run": run_id}).to_arrow_table()
        body = text_of(lines["line"])
        self.store.put(f"{self.layout.current_state}/{file.path}", body)
        fault_point("mirror.after_file")
        told = {
            "rows": lines.num_rows,
            "changed": pc.sum(lines["changed"]).as_py() or 0,
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        return file.model_copy(update=told)


# One line of JSON an entity, labelled as seen from a run: a later run than its own sees NO CHANGE.
LINES = f"""
SELECT left(entity, -{len(TAIL)}) || ',"incremental_state":"'
           || CASE WHEN run_id = $run THEN label ELSE '{Label.NO_CHANGE}' END
           || '"{TAIL.replace("}", "}}")}' || chr(10) AS line,
       run_id = $run AS changed
FROM {{rows}} WHERE {{part}} ORDER BY unit_key, ordinal
"""


def ranges(files: list[ChunkFile]) -> Iterator[Range]:
    """The files, which are in order of their keys within a kind, with the ends of their ranges."""
    for file, following in zip_longest(files, files[1:]):
        yield Range(file, following.first_key if following and following.kind == file.kind else None)


def stale_content(wanted: list[ChunkFile], before: Manifest | None, changed: Keys | None, damaged: set[str]) -> set[str]:
    """Paths whose content must come from the lake."""
    if before is None or changed is None:
        return {file.path for file in wanted}
    by_kind = ([file for file in wanted if file.kind == kind] for kind in Kind)
    hit: set[str] = set().union(*(touched(files, changed) for files in by_kind))
    return damaged | hit | {file.path for file in wanted if not file.sha256}


def text_of(lines: pa.ChunkedArray) -> memoryview:
    """All lines as one text. Those of a chunk lie one after the other already."""
    texts = [_chunk_text(chunk) for chunk in lines.chunks if len(chunk)]
    return texts[0] if len(texts) == 1 else memoryview(b"".join(texts))


def _chunk_text(values: pa.StringArray) -> memoryview:
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return memoryview(values.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
