"""Records as canonical bytes: equal records have equal bytes, whatever Arrow made of them.

The bytes of a record are an entry for each of its values that is not NULL, sorted by name: a tag (name and kind of value),
then the value at the width of its kind, both in words of eight bytes. Text, binary and lists have their length there, and
their bytes behind all entries. A NULL has no entry, so a column that a source gains does not change the records that have
no value in it. Everything is done column by column in numpy and Arrow; nothing is done row by row.
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

from tidemark.errors import TypeUnsupported

# A row of words for each record. NULLs leave holes, and to close them word by word takes an eighth of byte by byte.
Words = npt.NDArray[np.uint64]
Path = tuple[str, ...]

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MILLISECONDS_A_DAY = 86_400_000
WORD = 8
EMPTY = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True)
class Column:
    """One column as entries: a tag, a value of fixed width for each row, which rows have one, and what comes behind."""

    path: Path
    tag: int
    values: Words
    valid: npt.NDArray[np.bool_] | None
    tail: Any = None

    @property
    def width(self) -> int:
        return 1 + int(self.values.shape[1])


def canonical_rows(columns: Iterable[tuple[Path, Any]], rows: int, framed: bool = False) -> Any:
    """The canonical bytes of each row, as a large binary array. `framed` rows begin with their length."""
    entries = sorted((entry for path, array in columns for entry in _entries(path, array)), key=lambda each: each.path)
    tails = [entry.tail for entry in entries if entry.tail is not None]
    if framed:
        entries.insert(0, _frame(entries, tails, rows))
    heads = _heads(entries, rows)
    return pc.binary_join_element_wise(heads, *tails, EMPTY) if tails else heads


def _frame(entries: list[Column], tails: list[Any], rows: int) -> Column:
    """Without their lengths, the elements [{a: 1}, {b: 2}] would have the bytes of [{a: 1, b: 2}]."""
    lengths = np.zeros(rows, np.int64)
    for entry in entries:
        lengths += WORD * (entry.width if entry.valid is None else entry.width * entry.valid)
    for tail in tails:
        lengths += _lengths(tail)
    return Column((), _tag("row", ()), _words(lengths), None)


def _heads(entries: list[Column], rows: int) -> Any:
    """The entries of each row, one after the other, without those of NULLs."""
    widths = [entry.width for entry in entries]
    block = np.empty((rows, sum(widths)), "<u8")
    start = 0
    for entry in entries:
        block[:, start] = entry.tag
        block[:, start + 1 : start + entry.width] = entry.values
        start += entry.width
    if all(entry.valid is None for entry in entries):
        return _binary(np.arange(rows + 1, dtype=np.int64) * sum(widths), block)
    everywhere = np.ones(rows, np.bool_)
    valid = np.column_stack([everywhere if entry.valid is None else entry.valid for entry in entries])
    lengths = valid.astype(np.int64) @ np.array(widths, np.int64)
    return _binary(_offsets(lengths), block[np.repeat(valid, widths, axis=1)])


def _entries(path: Path, array: Any) -> Iterator[Column]:
    """The entries that a column is made of: one, or several if it is a struct."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield from _entries(path, array.dictionary_decode())
    elif pa.types.is_run_end_encoded(kind):
        yield from _entries(path, pc.run_end_decode(array))
    elif isinstance(array, pa.ExtensionArray):
        yield from _entries(path, array.storage)
    elif pa.types.is_struct(kind):
        yield _column(path, "struct", array, np.empty((len(array), 0), np.uint64))
        for field, child in zip(kind, array.flatten(), strict=True):  # a NULL struct has NULL fields
            yield from _entries((*path, field.name), child)
    elif not pa.types.is_null(kind):
        name, tail_of = _TAILS.get(_family(kind), (None, None))
        if name and tail_of:
            tail = tail_of(array)
            yield _column(path, name, array, _words(_lengths(tail)), tail)
        elif pa.types.is_uint64(kind):
            yield from _unsigned(path, array)
        else:
            name, values = _fixed(path, array)
            yield _column(path, name, array, values)


def _column(path: Path, kind: str, array: Any, values: Words, tail: Any = None) -> Column:
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)
    return Column(path, _tag(kind, path), values, valid, tail)


def _tag(kind: str, path: Path) -> int:
    return xxhash.xxh3_64_intdigest(json.dumps([kind, *path]).encode())


def _unsigned(path: Path, array: Any) -> Iterator[Column]:
    """As other integers; those that only fit without a sign under a tag of their own: -1 must not look like 2⁶⁴ - 1."""
    numbers, valid = _numbers(array, np.uint64), array.is_valid().to_numpy(zero_copy_only=False)
    great = numbers > np.iinfo(np.int64).max
    yield Column(path, _tag("integer", path), _words(numbers), valid & ~great)
    yield Column(path, _tag("great integer", path), _words(numbers), valid & great)


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


def _binary_tail(array: Any) -> Any:
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    return array.cast(pa.large_binary()).fill_null(b"")


def _list_tail(array: Any) -> Any:
    """The framed elements of each list, one after the other."""
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    counts = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = array.flatten()  # without what may lie below a NULL
    rows = canonical_rows([((), elements)], len(elements), framed=True)
    starts = np.frombuffer(rows.buffers()[1], np.int64)[: len(rows) + 1]
    return pa.Array.from_buffers(
        pa.large_binary(), len(array), [None, pa.py_buffer(starts[_offsets(counts)]), rows.buffers()[2]]
    )


_TAILS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("text", _binary_tail),
    "bytes": ("bytes", _binary_tail),
    "list": ("list", _list_tail),
}


def _fixed(path: Path, array: Any) -> tuple[str, Words]:
    """The kind of a column's values and their words; those of NULLs mean nothing."""
    kind = array.type
    if pa.types.is_integer(kind):
        return "integer", _words(_numbers(array, np.int64))
    if pa.types.is_floating(kind):
        numbers = _numbers(array, np.float64) + 0.0  # -0.0 becomes 0.0
        return "number", _words(np.where(np.isnan(numbers), np.nan, numbers))
    if pa.types.is_boolean(kind):
        return "switch", _words(_numbers(array.cast(pa.uint8()), np.int64))
    if pa.types.is_decimal(kind):
        return "decimal", _decimals(path, array)
    if pa.types.is_date32(kind):
        return "date", _words(_numbers(array.cast(pa.int32()), np.int64))
    if pa.types.is_date64(kind):
        return "date", _words(_numbers(array.cast(pa.int64()), np.int64) // MILLISECONDS_A_DAY)
    if pa.types.is_time(kind):
        ticks = array.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
        return "time", _words(_numbers(ticks, np.int64) * (10**9 // PER_SECOND[kind.unit]))
    if pa.types.is_timestamp(kind):
        return "instant" if kind.tz else "clock", _seconds(array)
    if pa.types.is_duration(kind):
        return "duration", _seconds(array)
    raise TypeUnsupported(f"the field {'.'.join(path)} is of the type {kind}, which cannot be compared between runs.")


def _numbers(array: Any, kind: type[np.generic]) -> npt.NDArray[Any]:
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(kind, copy=False)


def _seconds(array: Any) -> Words:
    """Whole seconds and nanoseconds: as nanoseconds alone, years after 2262 would not fit."""
    a_second = PER_SECOND[array.type.unit]
    seconds, rest = np.divmod(_numbers(array.cast(pa.int64()), np.int64), a_second)
    return np.hstack([_words(seconds), _words(rest * (10**9 // a_second))])


def _decimals(path: Path, array: Any) -> Words:
    """All at one scale, so that 1.5 and 1.50 are equal; a decimal128 of any scale fits."""
    try:
        wide = array.cast(pa.decimal256(76, 38))
    except pa.ArrowInvalid:
        raise TypeUnsupported(
            f"the field {'.'.join(path)} has decimals with more than 38 digits before or behind the point."
        ) from None
    whole = np.frombuffer(wide.buffers()[1], "<u8").reshape(-1, 4)
    return whole[wide.offset : wide.offset + len(wide)]


def _words(numbers: npt.NDArray[Any]) -> Words:
    """Numbers of eight bytes, one in a row."""
    return np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<")).view("<u8").reshape(len(numbers), 1)


def _lengths(binary: Any) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = pc.binary_length(binary).to_numpy(zero_copy_only=False)
    return lengths


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _binary(offsets: npt.NDArray[np.int64], content: Words) -> Any:
    """Rows of words as binary; offsets count words."""
    buffers = [None, pa.py_buffer(offsets * WORD), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
