"""Which records have landed, by their content hashes: sorted numbers, sixteen bytes a record, looked up page by page."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Half = npt.NDArray[np.uint64]
# Parts of equal size become one, as in a merge sort: a page is looked up in few of them.
GROWTH = 2


@dataclass(frozen=True)
class Hashes:
    """Hashes of 128 bits as two numbers each, in order of both."""

    high: Half
    low: Half

    @classmethod
    def of(cls, high: Half, low: Half) -> "Hashes":
        order = sorting(high, low)
        return cls(high[order], low[order])

    def __len__(self) -> int:
        return len(self.high)

    def has(self, high: Half, low: Half) -> npt.NDArray[np.bool_]:
        """Which of the given are among these."""
        found = np.zeros(len(high), np.bool_)
        if not len(self):
            return found
        place, last = np.searchsorted(self.high, high), len(self) - 1
        while True:
            here = np.minimum(place, last)
            same = (place <= last) & (self.high[here] == high) & ~found
            found |= same & (self.low[here] == low)
            if not (same & ~found).any():
                return found
            place = place + 1  # two hashes that begin alike


class Known:
    """What has landed, in earlier runs and so far in this slice."""

    def __init__(self, before: pa.Array) -> None:
        self._parts = [Hashes.of(*halves(before))]

    def new(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not there yet, each once."""
        high, low = halves(rows["content_hash"])
        order = sorting(high, low)
        high, low = high[order], low[order]
        fresh = np.ones(len(high), np.bool_)
        fresh[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        for part in self._parts:
            fresh &= ~part.has(high, low)
        if not fresh.all():
            kept = np.empty(len(fresh), np.bool_)
            kept[order] = fresh
            rows, high, low = rows.filter(pa.array(kept)), high[fresh], low[fresh]
        self._add(Hashes(high, low))
        return rows

    def _add(self, part: Hashes) -> None:
        # The first part is what landed before, often much: it is never sorted again.
        while len(self._parts) > 1 and len(self._parts[-1]) < GROWTH * len(part):
            last = self._parts.pop()
            part = Hashes.of(np.concatenate([last.high, part.high]), np.concatenate([last.low, part.low]))
        self._parts.append(part)


def sorting(high: Half, low: Half) -> npt.NDArray[np.intp]:
    """The order of both, and of equal ones as they came. One half alone decides it as good as always."""
    order = np.argsort(high)
    alike = high[order][1:] == high[order][:-1]
    return np.lexsort((low, high)) if alike.any() else order


def halves(hashes: pa.Array) -> tuple[Half, Half]:
    """128 bits as two numbers each."""
    if not len(hashes):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    packed = hashes.cast(pa.binary(16))
    both = np.frombuffer(packed.buffers()[1], ">u8").reshape(-1, 2)[packed.offset : packed.offset + len(packed)]
    return both[:, 0].astype(np.uint64), both[:, 1].astype(np.uint64)
