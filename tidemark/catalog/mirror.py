"""Writes the JSON mirror from a snapshot: only the files that changed, several at a time, each by one query. No Spark."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.catalog.chunks import LOWEST, ChunkFile, KeyCounts, place, touched
from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.manifest import FoundManifest, Manifest, find_manifest, settled
from tidemark.catalog.mirror_folder import Confirm, MirrorFolder, without_stamp
from tidemark.catalog.rows import TAIL, Kind, Label
from tidemark.clock import Clock
from tidemark.errors import LostRace, ObjectChanged, StateError, StoreError
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

    def bring_to(
        self, table: str, snapshot: int, run_id: str, changed: Keys | None, *, confirm: Confirm | None = None
    ) -> Manifest:
        """Makes the mirror show `snapshot` with the labels of `run_id`.

        `changed` are the keys of the units that this snapshot changed against what the mirror shows now; None: all of it
        is rewritten. The manifest goes first and comes back last, so that no reader takes a mixture for a state. LostRace
        if another run changes the mirror meanwhile: then this one leaves nothing of its own behind. `confirm` asks whether
        this run still holds its lease, before the first change and before each file.
        """
        # In this order: a manifest that is newer than the listing would be removed, although its files are not ours.
        found = find_manifest(self.store, self.layout)
        folder = MirrorFolder.look(self.store, self.layout.current_state, confirm)
        before = found.manifest if changed is not None else None
        if before is not None and before.chunk_size != self.chunk_size:
            before = None
        try:
            self._remove_manifest(found, folder)
            files = self._files(folder, table, snapshot, run_id, before, changed)
            manifest = self._manifest(snapshot, run_id, files)
            self._put_manifest(manifest, folder)
        except ObjectChanged as lost:
            self._leave(folder)
            raise self._lost() from lost
        except StateError:  # the lease is lost
            self._leave(folder)
            raise
        return manifest

    def follow(self, before: int, after: int, *, confirm: Confirm | None = None) -> Manifest | None:
        """Names `after` as what the mirror shows, which holds the same entities as `before`; None if it shows another."""
        found = find_manifest(self.store, self.layout)
        if found.manifest is None or found.etag is None or found.manifest.snapshot_id != before:
            return None
        moved = found.manifest.model_copy(update={"snapshot_id": after})
        if confirm is not None:
            confirm()
        fault_point("mirror.before_follow")
        try:
            self.store.put_if_unchanged(self.layout.manifest, moved.as_object(), found.etag)
        except ObjectChanged as lost:
            raise self._lost() from lost
        fault_point("mirror.after_follow")
        return moved

    def _lost(self) -> LostRace:
        where = self.layout.current_state
        return LostRace(f"{where}: another run has taken over this mirror; this run changed nothing more. Run again.")

    def _remove_manifest(self, found: FoundManifest, folder: MirrorFolder) -> None:
        """From here on only one writer builds on what the manifest listed."""
        folder.still_ours()
        fault_point("mirror.before_manifest_delete")
        if found.etag is None and self.layout.manifest in folder.etags:
            raise self._lost()
        if found.etag is not None and not self.store.delete_if_unchanged(self.layout.manifest, found.etag):
            # By another run, or by a try of ours whose answer got lost: while the lease is ours, it was no other run.
            if folder.confirm is None:
                raise self._lost()
            folder.still_ours()
        folder.etags.pop(self.layout.manifest, None)
        fault_point("mirror.after_manifest_delete")

    def _files(
        self, folder: MirrorFolder, table: str, snapshot: int, run_id: str, before: Manifest | None, changed: Keys | None
    ) -> list[ChunkFile]:
        """Every file of the mirror as it shall be; those that are no longer wanted are removed."""
        damaged = (
            {file.path for file in before.files if folder.sizes.get(self._key(file)) != file.bytes} if before else set()
        )
        rows = self.reader.files(table, snapshot).sql
        with self.reader.connect() as db:
            wanted = self._wanted(db, rows, before, changed)
            stale = stale_content(wanted, before, changed, damaged)
            with ThreadPoolExecutor(self.workers, thread_name_prefix="mirror") as pool:
                files = list(pool.map(lambda part: self._file(folder, db, rows, run_id, part, stale), ranges(wanted)))
        folder.remove(sorted(folder.etags.keys() - {self._key(file) for file in files}))
        return files

    def _manifest(self, snapshot: int, run_id: str, files: list[ChunkFile]) -> Manifest:
        return Manifest(
            run_id=run_id,
            snapshot_id=snapshot,
            written_at=self.clock.now(),
            chunk_size=self.chunk_size,
            counts={kind.value: sum(file.rows for file in files if file.kind == kind) for kind in Kind},
            files=files,
        )

    def _put_manifest(self, manifest: Manifest, folder: MirrorFolder) -> None:
        """Puts it, and takes it back if another run has been at the files: that one may have found no manifest either."""
        folder.still_ours()
        fault_point("mirror.before_manifest_put")
        etag = self.store.put_if_absent(self.layout.manifest, manifest.as_object())
        fault_point("mirror.after_manifest_put")
        if folder.changed_by_others(map(self._key, manifest.files)):
            # Once somebody has built on this manifest, the files are no longer ours to remove.
            if not self._removed(etag):
                folder.created.clear()
            raise self._lost()

    def _leave(self, folder: MirrorFolder) -> None:
        """What a run does that has lost the mirror to another one: nothing of its own may pass for a state."""
        with suppress(StoreError):
            # One that was put after this run had found none, and had rewritten a file that it lists.
            found = find_manifest(self.store, self.layout)
            listed = {self._key(file): file.sha256 for file in found.manifest.files} if found.manifest else {}
            if found.etag is not None and folder.contradicts(listed):
                self._removed(found.etag)
            folder.take_back()

    def _removed(self, etag: str) -> bool:
        try:
            return self.store.delete_if_unchanged(self.layout.manifest, etag)
        except ObjectChanged:
            return False

    def _key(self, file: ChunkFile) -> str:
        return f"{self.layout.current_state}/{file.path}"

    def _wanted(
        self, db: duckdb.DuckDBPyConnection, rows: str, before: Manifest | None, changed: Keys | None
    ) -> list[ChunkFile]:
        """Every file that the mirror should have, with the rows it should hold."""
        if before is not None and changed is not None and not len(changed):
            return before.files
        known = before.files if before is not None and changed is not None else []
        wanted: list[ChunkFile] = []
        for kind in Kind:
            files = sorted((file for file in known if file.kind == kind), key=lambda file: file.first_key)
            # Only files into whose range something changed are counted again; a kind without files has no ranges yet.
            hit = touched(files, changed) if files and changed is not None else None
            if hit is not None and not hit:
                wanted += files
                continue
            parts = [part.condition for part in ranges(files) if hit and part.file.path in hit]
            where = " OR ".join(f"({part})" for part in parts) or f"kind = '{kind}'"
            found = db.execute(
                f"SELECT unit_key, count(*) AS n FROM {rows} WHERE {where} GROUP BY ALL ORDER BY ALL"
            ).fetchnumpy()
            wanted += place(kind, KeyCounts(found["unit_key"], found["n"]), self.chunk_size, files, hit)
        return wanted

    def _file(
        self, folder: MirrorFolder, db: duckdb.DuckDBPyConnection, rows: str, run_id: str, part: Range, stale: set[str]
    ) -> ChunkFile:
        """The file as it shall be: left alone, with its labels settled, or written from the lake."""
        file = part.file
        if file.path not in stale:
            settled = self._settled(folder, file) if file.changed else file
            if settled is not None:
                return settled
        with db.cursor() as own:
            lines = own.sql(LINES.format(rows=rows, part=part.condition), params={"run": run_id}).to_arrow_table()
        changed = pc.sum(lines["changed"]).as_py() or 0
        return self._written(
            folder, file.model_copy(update={"rows": lines.num_rows, "changed": changed}), text_of(lines["line"])
        )

    def _settled(self, folder: MirrorFolder, file: ChunkFile) -> ChunkFile | None:
        """Rewrites one file with its labels settled; None if what is there is not what the manifest says."""
        found = self.store.find(self._key(file))
        if found is None or hashlib.sha256(found.body).hexdigest() != file.sha256:
            return None
        body = settled(without_stamp(bytes(found.body)))
        return self._written(folder, file.model_copy(update={"changed": 0}), memoryview(body))

    def _written(self, folder: MirrorFolder, file: ChunkFile, lines: memoryview) -> ChunkFile:
        body = memoryview(folder.stamped(lines))
        return file.model_copy(update={"bytes": body.nbytes, "sha256": folder.write(self._key(file), body)})


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
