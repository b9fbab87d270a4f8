"""The content hash of records: it separates a second change within one tick of the cursor from a record read twice.

Each value that is not NULL has a hash of 128 bits, over its name, its kind and its words; a record's is the sum of those, in
two halves of 64 bits. So the order of fields makes no difference, and a column that a source gains does not change the
records that have no value in it. Everything is done column by column in numpy and Arrow, nothing row by row.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tidemark.connectors.murmur import Halves, Words, hash_of_bytes, hash_of_words
from tidemark.errors import TypeUnsupported

Path = tuple[str, ...]

HASH_BYTES = 16
ROWS_AT_ONCE = 16_384  # what a core's cache holds of their words
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MILLISECONDS_A_DAY = 86_400_000


@dataclass(frozen=True)
class Entry:
    """One column: what its name and kind are, the words of each row's value, and which rows have one."""

    tag: np.uint64
    words: tuple[Words, ...]
    valid: npt.NDArray[np.bool_] | None


def content_hash(batch: Any, fields: Iterable[str] | None = None) -> Any:
    """128 bits for each record, over the fields (without any given: over all), as binary of 16 bytes.

    Equal for equal content, in every process and for every layout of it: order of columns, chunks and slices, width of
    integers, scale of decimals, unit and zone of instants, dictionaries, and columns that are NULL or not there make no
    difference. Plain binary rather than fixed-size, which Spark does not take from Arrow.
    """
    names = list(batch.schema.names if fields is None else dict.fromkeys(fields))
    hashes = np.empty((batch.num_rows, 2), ">u8")
    for start in range(0, batch.num_rows, ROWS_AT_ONCE):
        part = batch.slice(start, ROWS_AT_ONCE)
        first, second = record_hashes([((name,), part.column(name)) for name in names], part.num_rows)
        hashes[start : start + len(first), 0] = first
        hashes[start : start + len(first), 1] = second
    return _binary(hashes, np.arange(0, hashes.nbytes + 1, HASH_BYTES, dtype=np.int32), pa.binary())


def record_hashes(columns: Iterable[tuple[Path, Any]], rows: int) -> Halves:
    """The hash of each row."""
    first, second = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    for entry in (entry for path, array in columns for entry in _entries(path, array)):
        one, two = hash_of_words(entry.tag, *entry.words)
        if entry.valid is not None:
            one, two = one * entry.valid, two * entry.valid
        first += one
        second += two
    return first, second


# --- columns ---------------------------------------------------------------------------------------------------------


def _entries(path: Path, array: Any) -> Iterator[Entry]:
    """The entries that a column is made of: one, or several if it is a struct."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield from _entries(path, array.dictionary_decode())
    elif pa.types.is_run_end_encoded(kind):
        yield from _entries(path, pc.run_end_decode(array))
    elif isinstance(array, pa.ExtensionArray):
        yield from _entries(path, array.storage)
    elif pa.types.is_struct(kind):
        yield _entry(path, "struct", array)
        for field, child in zip(kind, array.flatten(), strict=True):  # a NULL struct has NULL fields
            yield from _entries((*path, field.name), child)
    elif not pa.types.is_null(kind):
        name, content_of = _CONTENTS.get(_family(kind), (None, None))
        if name and content_of:
            yield _entry(path, name, array, *hash_of_bytes(content_of(array)))
        elif pa.types.is_uint64(kind):
            yield from _unsigned(path, array)
        else:
            name, words = _fixed(path, array)
            yield _entry(path, name, array, *words)


def _entry(path: Path, kind: str, array: Any, *words: Words) -> Entry:
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)
    if not words:  # whether there is one is all that there is to it
        words = (np.zeros(len(array), np.uint64),)
    return Entry(_tag(kind, path), words, valid)


def _tag(kind: str, path: Path) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(json.dumps([kind, *path]).encode()))


def _unsigned(path: Path, array: Any) -> Iterator[Entry]:
    """As other integers; those that only fit without a sign under a tag of their own: -1 must not look like 2⁶⁴ - 1."""
    numbers, valid = _numbers(array, np.uint64), array.is_valid().to_numpy(zero_copy_only=False)
    great = numbers > np.iinfo(np.int64).max
    yield Entry(_tag("integer", path), (numbers,), valid & ~great)
    yield Entry(_tag("great integer", path), (numbers,), valid & great)


def _family(kind: Any) -> str:
    if pa.types.is_map(kind):
        return "list"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return "bytes"
    if pa.types.is_fixed_size_binary(kind):
        return "bytes"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "list"
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return "list"
    return "fixed"


# --- values of any length --------------------------------------------------------------------------------------------


def _content(array: Any) -> Any:
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    return array.cast(pa.large_binary()).fill_null(b"")


def _elements(array: Any) -> Any:
    """The hashes of the elements of each list, one after the other."""
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    counts = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = array.flatten()  # without what may lie below a NULL
    hashes = np.column_stack(record_hashes([((), elements)], len(elements))).astype("<u8")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    return _binary(hashes, ends * HASH_BYTES, pa.large_binary())


_CONTENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("text", _content),
    "bytes": ("bytes", _content),
    "list": ("list", _elements),
}


# --- values of fixed width -------------------------------------------------------------------------------------------


def _fixed(path: Path, array: Any) -> tuple[str, tuple[Words, ...]]:
    """The kind of a column's values and their words; those of NULLs mean nothing."""
    kind = array.type
    if pa.types.is_integer(kind):
        return "integer", (_words(_numbers(array, np.int64)),)
    if pa.types.is_floating(kind):
        numbers = _numbers(array, np.float64) + 0.0  # -0.0 becomes 0.0
        return "number", (_words(np.where(np.isnan(numbers), np.nan, numbers)),)
    if pa.types.is_boolean(kind):
        return "switch", (_words(_numbers(array.cast(pa.uint8()), np.int64)),)
    if pa.types.is_decimal(kind):
        return "decimal", _decimals(path, array)
    if pa.types.is_date32(kind):
        return "date", (_words(_numbers(array.cast(pa.int32()), np.int64)),)
    if pa.types.is_date64(kind):
        return "date", (_words(_numbers(array.cast(pa.int64()), np.int64) // MILLISECONDS_A_DAY),)
    if pa.types.is_time(kind):
        ticks = array.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
        return "time", (_words(_numbers(ticks, np.int64) * (10**9 // PER_SECOND[kind.unit])),)
    if pa.types.is_timestamp(kind):
        return "instant" if kind.tz else "clock", _seconds(array)
    if pa.types.is_duration(kind):
        return "duration", _seconds(array)
    raise TypeUnsupported(f"the field {'.'.join(path)} is of the type {kind}, which cannot be compared between runs.")


def _numbers(array: Any, kind: type[np.generic]) -> npt.NDArray[Any]:
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(kind, copy=False)


def _seconds(array: Any) -> tuple[Words, Words]:
    """Whole seconds and nanoseconds: as nanoseconds alone, years after 2262 would not fit."""
    a_second = PER_SECOND[array.type.unit]
    seconds, rest = np.divmod(_numbers(array.cast(pa.int64()), np.int64), a_second)
    return _words(seconds), _words(rest * (10**9 // a_second))


def _decimals(path: Path, array: Any) -> tuple[Words, ...]:
    """All at one scale, so that 1.5 and 1.50 are equal; a decimal128 of any scale fits."""
    try:
        wide = array.cast(pa.decimal256(76, 38))
    except pa.ArrowInvalid:
        raise TypeUnsupported(
            f"the field {'.'.join(path)} has decimals with more than 38 digits before or behind the point."
        ) from None
    whole = np.frombuffer(wide.buffers()[1], "<u8").reshape(-1, 4)[wide.offset : wide.offset + len(wide)]
    return tuple(np.ascontiguousarray(whole[:, place]) for place in range(4))


def _words(numbers: npt.NDArray[Any]) -> Words:
    return np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("=")).view(np.uint64)


def _binary(content: npt.NDArray[Any], offsets: npt.NDArray[Any], kind: Any) -> Any:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
