"""Types of fields from run to run: what widens stays one column. And what has landed is known again."""

import hashlib
import pickle
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_code.connectors.bronze import landing_field, merged, normal
from tidemark.connectors.bronze import is_set
from tidemark.connectors.contract import Pace
from tidemark.connectors.known import Known
from tidemark.connectors.stream import StreamSpec

pytestmark = pytest.mark.fast

STREAM = StreamSpec(id="a", key=["id"])


def landed(before: pa.DataType, now: pa.DataType) -> pa.Field:
    return landing_field(STREAM, pa.field("x", now), {"x": normal(before)}, {"id"})


def test_the_same_nested_field_stays_in_its_column_however_arrow_writes_it() -> None:
    as_kept = pa.large_list(pa.field("element", pa.struct([("a", pa.large_string()), ("n", pa.int32())])))
    as_read = pa.list_(pa.struct([("a", pa.string()), ("n", pa.int16())]))
    assert landed(as_kept, as_read).name == "x"
    assert landed(pa.map_(pa.large_string(), pa.large_string()), pa.map_(pa.string(), pa.string())).name == "x"


@pytest.mark.parametrize(
    ("before", "now", "both"),
    [
        (
            pa.struct([("a", pa.int64())]),
            pa.struct([("b", pa.string())]),
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
        ),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.field("element", pa.int64()))),
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.decimal128(9, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
    ],
)
def test_types_that_go_together_are_one_column(before: pa.DataType, now: pa.DataType, both: pa.DataType) -> None:
    assert landed(before, now) == pa.field("x", both)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (pa.string(), pa.int64()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())])),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
    ],
)
def test_types_that_do_not_are_two(before: pa.DataType, now: pa.DataType) -> None:
    assert merged(before, now) is None
    assert landed(before, now).name.startswith("x__")


def hashes(*numbers: int) -> pa.Array:
    return pa.array([hashlib.md5(str(number).encode()).digest() for number in numbers], pa.binary())


def test_what_has_landed_is_left_out_and_what_comes_twice_lands_once() -> None:
    # Two hashes that begin alike, as good as never met and still told apart.
    alike = [b"\1" * 8 + b"\2" * 8, b"\1" * 8 + b"\3" * 8, b"\1" * 8 + b"\4" * 8]
    known = Known(pa.concat_arrays([hashes(*range(0, 1000, 2)), pa.array(alike[:2], pa.binary())]))
    page = pa.record_batch({"content_hash": pa.concat_arrays([hashes(*range(1000), 1, 3), pa.array(alike, pa.binary())])})
    new = known.new(page)["content_hash"]
    assert new.to_pylist() == [*hashes(*range(1, 1000, 2)).to_pylist(), alike[2]]
    assert known.new(page).num_rows == 0


@given(
    before=st.lists(st.integers(0, 300)),
    pages=st.lists(st.lists(st.integers(0, 300), max_size=12), max_size=8),
)
def test_every_record_lands_once_whatever_page_it_comes_in(before: list[int], pages: list[list[int]]) -> None:
    def hashed(numbers: list[int]) -> list[bytes]:
        # Every third begins as the one before it does.
        return [(number - number % 3 // 2).to_bytes(8, "big") + number.to_bytes(8, "big") for number in numbers]

    known, there = Known(pa.array(hashed(before), pa.binary())), set(hashed(before))
    for page in map(hashed, pages):
        expected = [each for place, each in enumerate(page) if each not in there and each not in page[:place]]
        new = known.new(pa.record_batch({"content_hash": pa.array(page, pa.binary())}))
        assert new["content_hash"].to_pylist() == expected
        there.update(page)


def test_a_flag_as_large_text_means_what_it_says() -> None:
    assert is_set(pa.array(["N", "false", "yes", None], pa.large_string())).to_pylist() == [False, False, True, False]


def test_a_pace_does_not_carry_the_clock_of_one_machine_to_another() -> None:
    pace = Pace(0.5)
    pace.wait()
    elsewhere = pickle.loads(pickle.dumps(pace))
    started = time.monotonic()
    elsewhere.wait()
    assert time.monotonic() - started < 1
