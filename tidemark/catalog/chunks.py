"""Stable places in the mirror: ranges of the sorted key, one file each, that split when they grow."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from tidemark.catalog.rows import Kind

LOWEST = -(1 << 63)


class ChunkFile(BaseModel):
    """One file of the mirror. It holds the entities whose key is at least `first_key` and below the next file's."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    number: int
    first_key: int
    rows: int = 0
    # Rows whose label is not NO CHANGE: they must be re-labelled by the next run.
    changed: int = 0
    bytes: int = 0
    sha256: str = ""

    @property
    def path(self) -> str:
        return f"{self.kind}/{self.kind}_{self.number}.json"


@dataclass(frozen=True)
class KeyCounts:
    """How many rows of one kind each unit has: keys in order, counts next to them."""

    keys: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        return int(self.counts.sum())


def place(
    kind: Kind, counts: KeyCounts, chunk_size: int, previous: list[ChunkFile], changed: set[str] | None = None
) -> list[ChunkFile]:
    """The files of one kind in order of their keys, with the rows each will hold.

    `changed` are the paths of the files whose rows `counts` is about; all others stay as they are. None: all of them.

    A file keeps its range and its number as long as it is not too full; only files that are too full are split, so one new
    table does not move the others. A unit is never split: its columns are found in one file.
    """
    files = sorted((file for file in previous if file.kind == kind), key=lambda file: file.first_key)
    if not files:
        files = [ChunkFile(kind=kind, number=0, first_key=LOWEST)]
    placed: list[ChunkFile] = []
    next_number = max((file.number for file in files), default=-1) + 1
    ends = [*(file.first_key for file in files[1:]), None]
    for file, end in zip(files, ends, strict=True):
        if changed is not None and file.path not in changed:
            placed.append(file)
            continue
        first = np.searchsorted(counts.keys, file.first_key)
        last = len(counts.keys) if end is None else np.searchsorted(counts.keys, end)
        within = counts.counts[first:last]
        # A new file is filled; one that overflowed is halved, so that both parts have room to grow.
        total = int(within.sum())
        limit = min(chunk_size, -(-total // 2)) if file.rows and total > chunk_size else chunk_size
        for index, (at, rows) in enumerate(_cut(within, limit)):
            if index == 0:
                placed.append(file if rows == file.rows else file.model_copy(update={"rows": rows, "sha256": ""}))
            else:
                placed.append(ChunkFile(kind=kind, number=next_number, first_key=int(counts.keys[first + at]), rows=rows))
                next_number += 1
    # A file that lost all its rows goes, and its neighbour takes over the range.
    kept = [file for file in placed if file.rows]
    if kept and kept[0].first_key != LOWEST:
        kept[0] = kept[0].model_copy(update={"first_key": LOWEST})
    return kept


def _cut(counts: npt.NDArray[np.int64], chunk_size: int) -> list[tuple[int, int]]:
    """Where each file begins (index of its first unit) and how many rows it gets."""
    pieces: list[tuple[int, int]] = []
    start, rows = 0, 0
    for index, count in enumerate(counts.tolist()):
        if rows and rows + count > chunk_size:
            pieces.append((start, rows))
            start, rows = index, 0
        rows += count
    return [*pieces, (start, rows)]


def touched(files: list[ChunkFile], keys: npt.NDArray[np.int64]) -> set[str]:
    """Paths of the files of one kind, in order of their keys, into whose range one of the keys falls."""
    if not files or not len(keys):
        return set()
    firsts = np.array([file.first_key for file in files], np.int64)
    return {files[at].path for at in np.unique(np.maximum(np.searchsorted(firsts, keys, side="right") - 1, 0)).tolist()}
