"""MurmurHash3 (x64, 128 bits) of many values at once: numpy goes through all rows together, word by word.

The function is Austin Appleby's, bit for bit; the tests compare it with a library that takes one value at a time.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

Words = npt.NDArray[np.uint64]
Halves = tuple[Words, Words]
# A word of every row, or one for all of them.
Word = Words | np.uint64

C1, C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
N1, N2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
F1, F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
FIVE = np.uint64(5)
WORD, BLOCK = 8, 16

# Texts beyond this many bytes go one by one through a function made for long ones.
SHORT = 128
# What is kept of a word that has so many bytes.
KEPT = np.array([(1 << 8 * size) - 1 for size in range(WORD + 1)], np.uint64)


def hash_of_words(*words: Word) -> Halves:
    """The hash of each row of words, of which at least one is not the same for all rows."""
    with np.errstate(over="ignore"):
        first, second = np.uint64(0), np.uint64(0)
        for place in range(0, len(words) - 1, 2):
            first, second = _block(first, second, words[place], words[place + 1])
        if len(words) % 2:
            first = first ^ _first(words[-1])
        return _finished(first, second, np.uint64(WORD * len(words)))


def hash_of_bytes(values: Any) -> Halves:
    """The hash of each value of a large binary array without NULLs; of a long one, XXH3 in its place."""
    lengths: npt.NDArray[np.int64] = pc.binary_length(values).to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    short = lengths <= SHORT
    if short.all():
        return _short(values, offsets[:-1], lengths)
    first, second = _short(values, offsets[:-1], np.where(short, lengths, 0))
    digests = b"".join(map(xxhash.xxh3_128_digest, values.filter(pa.array(~short)).to_pylist()))
    found = np.frombuffer(digests, ">u8").reshape(-1, 2)
    first[~short], second[~short] = found[:, 0], found[:, 1]
    return first, second


def _short(values: Any, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Halves:
    rows = len(lengths)
    if not rows:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    # Behind the last value there must be something to read, though none of it counts.
    begin, end = int(starts[0]), int((starts + lengths).max())
    content = np.zeros(end - begin + BLOCK, np.uint8)
    content[: end - begin] = np.frombuffer(values.buffers()[2] or b"", np.uint8)[begin:end]
    words = np.ndarray((len(content) - WORD + 1,), "<u8", content, strides=(1,))  # a word begins at every byte
    starts = starts - begin
    first, second = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    with np.errstate(over="ignore"):
        for done in range(0, int(lengths.max()) // BLOCK * BLOCK, BLOCK):
            there = lengths >= done + BLOCK
            at: Any = slice(None) if there.all() else np.flatnonzero(there)
            places = starts[at] + done
            first[at], second[at] = _block(first[at], second[at], words[places], words[places + WORD])
        rest = lengths % BLOCK
        places = starts + lengths - rest
        second ^= _second(words[places + np.minimum(rest, WORD)] & KEPT[np.maximum(rest - WORD, 0)])
        first ^= _first(words[places] & KEPT[np.minimum(rest, WORD)])
        return _finished(first, second, lengths.astype(np.uint64))


def _first(word: Word) -> Any:
    return _turned(word * C1, 31) * C2


def _second(word: Word) -> Any:
    return _turned(word * C2, 33) * C1


def _block(first: Word, second: Word, one: Word, two: Word) -> Any:
    first = (_turned(first ^ _first(one), 27) + second) * FIVE + N1
    return first, (_turned(second ^ _second(two), 31) + first) * FIVE + N2


def _finished(first: Any, second: Any, length: Word) -> Halves:
    first, second = first ^ length, second ^ length
    first = first + second
    second = second + first
    first, second = _mixed(first), _mixed(second)
    first = first + second
    return first, second + first


def _mixed(word: Any) -> Any:
    word = (word ^ (word >> np.uint64(33))) * F1
    word = (word ^ (word >> np.uint64(33))) * F2
    return word ^ (word >> np.uint64(33))


def _turned(word: Any, by: int) -> Any:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))
