"""Which records have landed, by their content hashes: numbers in order, 16 to 24 bytes a record, looked up page by page."""

from dataclasses import dataclass
from functools import cached_property

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


class Part:
    """Hashes that came together. Their first halves, in order, nearly always show that none of them came before."""

    def __init__(self, high: Half, low: Half, starts: Half | None = None) -> None:
        self.high, self.low = high, low
        self.starts = np.sort(high) if starts is None else starts

    def __len__(self) -> int:
        return len(self.high)

    @cached_property
    def all(self) -> Hashes:
        both = Hashes.of(self.high, self.low)
        # In order they serve as well: none of them is kept twice.
        self.high = self.starts = both.high
        self.low = both.low
        return both

    @property
    def has_twins(self) -> bool:
        return bool((self.starts[1:] == self.starts[:-1]).any())

    def may_have_some_of(self, other: "Part") -> bool:
        if not len(self):
            return False
        place = np.minimum(np.searchsorted(self.starts, other.starts), len(self) - 1)
        return bool((self.starts[place] == other.starts).any())

    def __add__(self, other: "Part") -> "Part":
        # Two pieces that are in order each: to merge them is quicker than to sort.
        starts = np.sort(np.concatenate([self.starts, other.starts]), kind="stable")
        return Part(np.concatenate([self.high, other.high]), np.concatenate([self.low, other.low]), starts)


class Known:
    """What has landed, in earlier runs and so far in this slice."""

    def __init__(self, before: pa.Array) -> None:
        self._parts = [Part(*halves(before))]

    def new(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not there yet, each once."""
        page = Part(*halves(rows["content_hash"]))
        if page.has_twins or any(part.may_have_some_of(page) for part in self._parts):
            fresh = self._fresh(page)
            rows, page = rows.filter(pa.array(fresh)), Part(page.high[fresh], page.low[fresh])
        self._add(page)
        return rows

    def _fresh(self, page: Part) -> npt.NDArray[np.bool_]:
        """Which of them are the first of their kind."""
        order = sorting(page.high, page.low)
        high, low = page.high[order], page.low[order]
        first = np.ones(len(high), np.bool_)
        first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        for part in self._parts:
            first &= ~part.all.has(high, low)
        fresh = np.empty(len(first), np.bool_)
        fresh[order] = first
        return fresh

    def _add(self, part: Part) -> None:
        # The first part is what landed before, often much: it is never merged.
        while len(self._parts) > 1 and len(self._parts[-1]) < GROWTH * len(part):
            part = self._parts.pop() + part
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
