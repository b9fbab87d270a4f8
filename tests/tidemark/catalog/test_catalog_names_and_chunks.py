"""Qualified names that cannot be confused, and stable places in the mirror."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.catalog.chunks import ChunkFile, KeyCounts, place, touched
from tidemark.catalog.manifest import settled
from tidemark.catalog.names import parts_of, qualified_name, unit_key
from tidemark.catalog.packing import qualified_names
from tidemark.catalog.rows import Kind, with_label

pytestmark = pytest.mark.fast

names = st.text(min_size=1).filter(lambda text: "\x00" not in text)


@given(st.lists(names, min_size=1, max_size=4))
def test_the_parts_of_a_name_come_back_as_they_were(parts: list[str]) -> None:
    assert parts_of(qualified_name("pg", "1", *parts)) == tuple(parts)


@given(st.lists(st.tuples(names, names, names), max_size=5))
def test_many_names_at_once_are_the_same_as_one_by_one(tables: list[tuple[str, str, str]]) -> None:
    parts = [pa.chunked_array([pa.array([each[at] for each in tables], pa.string())]) for at in range(3)]
    expected = [qualified_name("pg", "1", *each) for each in tables]
    assert qualified_names(qualified_name("pg", "1"), *parts).to_pylist() == expected


def test_a_slash_in_a_name_does_not_make_it_another_one() -> None:
    assert qualified_name("pg", "1", "a/b", "c") != qualified_name("pg", "1", "a", "b/c")
    assert qualified_name("pg", "1", "a%2Fb") != qualified_name("pg", "1", "a/b")


def test_the_key_is_a_signed_number_of_64_bits() -> None:
    assert unit_key("") == -7444071767201028348
    assert all(-(1 << 63) <= unit_key(str(n)) < (1 << 63) for n in range(1000))


counted_units = st.dictionaries(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1, 60), max_size=80)


def counts_of(units: dict[int, int]) -> KeyCounts:
    keys = np.array(sorted(units), dtype=np.int64)
    return KeyCounts(keys, np.array([units[int(key)] for key in keys], dtype=np.int64))


@given(counted_units, counted_units)
def test_every_unit_has_one_place_and_no_file_is_too_full(before: dict[int, int], after: dict[int, int]) -> None:
    first = place(Kind.COLUMN, counts_of(before), 50, [])
    second = place(Kind.COLUMN, counts_of(after), 50, first)
    for units, files in ((before, first), (after, second)):
        assert sum(file.rows for file in files) == sum(units.values())
        assert len({file.number for file in files}) == len(files)
        firsts = [file.first_key for file in files]
        assert firsts == sorted(set(firsts))
        for index, file in enumerate(files):
            end = firsts[index + 1] if index + 1 < len(files) else 1 << 63
            inside = [count for key, count in units.items() if file.first_key <= key < end]
            assert sum(inside) == file.rows
            assert file.rows <= 50 or len(inside) == 1


@given(counted_units)
def test_one_new_unit_moves_no_other(units: dict[int, int]) -> None:
    files = place(Kind.COLUMN, counts_of(units), 50, [])
    grown = place(Kind.COLUMN, counts_of({**units, 7: 1}), 50, files)
    changed = {file.path for file in grown} - {file.path for file in files if file in grown}
    assert len(changed) <= 3


def test_files_are_filled_at_first_and_halved_when_they_overflow() -> None:
    full = place(Kind.COLUMN, counts_of(dict.fromkeys(range(30), 10)), 100, [])
    assert [file.rows for file in full] == [100, 100, 100]
    grown = place(Kind.COLUMN, counts_of(dict.fromkeys(range(30), 10) | {5: 11}), 100, full)
    assert [(file.number, file.rows) for file in grown] == [(0, 50), (3, 51), (1, 100), (2, 100)]


def test_a_change_touches_the_file_in_whose_range_it_falls() -> None:
    files = [ChunkFile(kind=Kind.TABLE, number=n, first_key=key, rows=1) for n, key in enumerate((-100, 0, 100))]
    assert touched(files, np.array([-1, 150], dtype=np.int64)) == {"table/table_0.json", "table/table_2.json"}


def test_settling_changes_labels_at_the_end_of_lines_and_nothing_else() -> None:
    tricky = '{"typeName":"Table","status":"ACTIVE","attributes":{"name":",\\"incremental_state\\":\\"CREATED\\"}}"}}'
    body = "".join(with_label(tricky, label) + "\n" for label in ("CREATED", "UPDATED", "BACKFILL", "NO CHANGE"))
    assert settled(body.encode()).decode() == (with_label(tricky, "NO CHANGE") + "\n") * 4


@given(counted_units.filter(bool), counted_units, st.sets(st.integers(0, 79)))
def test_only_files_in_whose_range_something_changed_need_be_counted(
    before: dict[int, int], added: dict[int, int], dropped: set[int]
) -> None:
    files = place(Kind.COLUMN, counts_of(before), 100, [])
    gone = {key for at, key in enumerate(sorted(before)) if at in dropped}
    now = {key: count for key, count in (before | added).items() if key not in gone - added.keys()}
    changed = np.array(sorted(gone | added.keys()), dtype=np.int64)
    hit = touched(files, changed)
    ends = [*(file.first_key for file in files[1:]), 1 << 63]
    counted = {
        key: count
        for key, count in now.items()
        if any(file.path in hit and file.first_key <= key < end for file, end in zip(files, ends, strict=True))
    }
    assert place(Kind.COLUMN, counts_of(counted), 100, files, hit) == place(Kind.COLUMN, counts_of(now), 100, files)
