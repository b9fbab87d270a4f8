"""The content hash: equal for equal content, whatever Arrow made of it, and different for everything else."""

import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.connectors import envelope
from tidemark.connectors.envelope import content_hash
from tidemark.errors import TypeUnsupported

pytestmark = pytest.mark.fast

INSTANT = datetime(2025, 10, 2, 11, 20, 45, 950_000, tzinfo=UTC)


def hashes(**columns: Any) -> list[bytes]:
    batch = pa.record_batch(
        {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
    )
    return list(content_hash(batch).to_pylist())


def one(value: Any, type: Any = None) -> bytes:
    return hashes(x=pa.array([value], type))[0]


def test_a_hash_has_128_bits() -> None:
    result = content_hash(pa.record_batch({"x": [1, 2]}))
    assert result.type == pa.binary()
    assert [len(each) for each in result.to_pylist()] == [16, 16]


def test_the_hash_never_changes_between_versions() -> None:
    # Landed records keep theirs: if this fails, every record read again would land as a new one.
    batch = pa.record_batch(
        {
            "id": pa.array([7], pa.int32()),
            "name": ["Käthe"],
            "price": [Decimal("1.50")],
            "weight": [0.5],
            "ok": [True],
            "changed": [INSTANT],
            "day": [date(2025, 10, 2)],
            "at": [time(11, 20)],
            "took": [timedelta(seconds=3)],
            "raw": [b"\x00\xff"],
            "tags": [["a", None, "b"]],
            "place": [{"city": "Bern", "zip": None}],
            "gone": pa.nulls(1),
        }
    )
    assert content_hash(batch).to_pylist()[0].hex() == "712a6976fa7720d4907cc842296c7a07"


def test_null_and_empty_are_two_things() -> None:
    assert len(set(hashes(x=pa.array([None, "", "\0", " "])))) == 4
    assert len({one(None, pa.binary()), one(b"")}) == 2
    assert len({one(None, pa.int64()), one(0)}) == 2
    assert len(set(hashes(x=pa.array([None, [], [None]], pa.list_(pa.int64()))))) == 3
    assert len(set(hashes(x=pa.array([None, {"a": None}, {"a": 0}], pa.struct({"a": pa.int64()}))))) == 3


def test_where_a_column_ends_matters() -> None:
    assert len(set(hashes(a=["ab", "a", "abc", ""], b=["c", "bc", "", "abc"]))) == 4
    assert len(set(hashes(a=["x", None], b=[None, "x"]))) == 2
    assert len(set(hashes(a=[1, None], b=[None, 1]))) == 2
    assert hashes(a=["x"]) != hashes(b=["x"])


def test_where_an_element_ends_matters() -> None:
    words = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["", "abc"], ["abc", None]]
    assert len(set(hashes(x=pa.array(words)))) == len(words)
    entries: list[list[dict[str, int]]] = [[{"a": 1}, {"b": 2}], [{"a": 1, "b": 2}], [{"b": 2}, {"a": 1}]]
    assert len(set(hashes(x=pa.array(entries)))) == len(entries)
    nested = [[["a"], ["b"]], [["a", "b"]], [["a", "b"], []], [["a", "b"], None]]
    assert len(set(hashes(x=pa.array(nested)))) == len(nested)


def test_a_path_is_not_a_name_with_a_dot() -> None:
    assert hashes(**{"a.b": ["x"]}) != hashes(a=pa.array([{"b": "x"}]))


def test_kinds_of_value_are_kept_apart() -> None:
    values = [1, 1.0, True, "1", b"1", Decimal(1), date(1970, 1, 2), time(0, 0, 1), timedelta(seconds=1)]
    moments = [datetime.fromtimestamp(1, UTC), datetime(1970, 1, 1, 0, 0, 1)]  # noqa: DTZ001 - without zone on purpose
    assert len({one(value) for value in [*values, *moments]}) == len(values) + len(moments)


def test_zero_has_no_sign_and_nan_no_payload() -> None:
    assert one(-0.0) == one(0.0)
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0123))[0]
    assert hashes(x=pa.array(np.array([odd]))) == [one(float("nan"))]
    assert one(float("nan")) != one(None, pa.float64())


@pytest.mark.parametrize("width", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64()])
def test_integers_are_equal_at_every_width(width: Any) -> None:
    assert one(7, width) == one(7, pa.int64())


def test_the_greatest_unsigned_number_is_not_minus_one() -> None:
    assert one(2**64 - 1, pa.uint64()) != one(-1, pa.int64())
    assert one(2**53 + 1) != one(2**53)
    assert len(set(hashes(x=pa.array([2**53, 2**53 + 1, None])))) == 3


def test_a_float_is_equal_at_both_widths() -> None:
    assert one(0.5, pa.float32()) == one(0.5, pa.float64()) == one(0.5, pa.float16())


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
def test_an_instant_is_equal_in_every_unit_and_zone(unit: str, zone: str) -> None:
    whole = INSTANT.replace(microsecond=0)
    assert one(whole, pa.timestamp(unit, zone)) == one(whole, pa.timestamp("us", "UTC"))
    assert one(whole, pa.timestamp(unit, zone)) != one(INSTANT, pa.timestamp("us", "UTC"))
    assert one(whole, pa.timestamp(unit, zone)) != one(whole.replace(tzinfo=None), pa.timestamp(unit))


def test_instants_of_all_ages_are_kept_apart() -> None:
    seconds = [-(10**14), -1, 0, 1, 10**14]
    assert len({one(value, pa.timestamp("s", "UTC")) for value in seconds}) == len(seconds)
    assert one(-1, pa.timestamp("ns", "UTC")) != one(999_999_999, pa.timestamp("ns", "UTC"))


@pytest.mark.parametrize("type", [pa.decimal128(3, 2), pa.decimal128(38, 37), pa.decimal256(76, 38), pa.decimal128(5, 1)])
def test_a_decimal_is_equal_at_every_scale(type: Any) -> None:
    assert one(Decimal("1.5"), type) == one(Decimal("1.5"), pa.decimal128(10, 4))
    assert one(Decimal("-1.5"), type) != one(Decimal("1.5"), type)


def test_a_decimal_of_38_digits_fits_at_both_ends() -> None:
    great, small = Decimal("9" * 38), Decimal("0." + "9" * 38)
    assert (
        len(
            {
                one(great, pa.decimal128(38, 0)),
                one(small, pa.decimal128(38, 38)),
                one(great.copy_negate(), pa.decimal128(38, 0)),
            }
        )
        == 3
    )


def test_a_slice_of_wide_decimals_is_read_from_where_it_begins() -> None:
    wide = pa.array([Decimal(1), Decimal(2), Decimal(3)], pa.decimal256(76, 38))
    assert hashes(x=wide.slice(1)) == hashes(x=wide)[1:]


def test_a_decimal_that_cannot_be_compared_names_its_field_and_not_its_value() -> None:
    with pytest.raises(TypeUnsupported, match=r"the field x has decimals") as refused:
        one(Decimal("7" * 60), pa.decimal256(60, 0))
    assert "777" not in str(refused.value)


def test_a_type_without_meaning_across_runs_is_refused_by_name() -> None:
    with pytest.raises(TypeUnsupported, match="the field x is of the type month_day_nano_interval"):
        one((1, 2, 3), pa.month_day_nano_interval())


@pytest.mark.parametrize("type", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_text_is_equal_in_every_layout(type: Any) -> None:
    words = pa.array(["a", None, "", "Käthe", "a"])
    assert hashes(x=words.cast(type)) == hashes(x=words)


@pytest.mark.parametrize("type", [pa.large_binary(), pa.binary_view(), pa.binary(2)])
def test_binary_is_equal_in_every_layout(type: Any) -> None:
    assert hashes(x=pa.array([b"ab", None], type)) == hashes(x=pa.array([b"ab", None], pa.binary()))


@pytest.mark.parametrize("type", [pa.large_list(pa.int8()), pa.list_(pa.int64(), 2), pa.list_view(pa.int64())])
def test_lists_are_equal_in_every_layout(type: Any) -> None:
    lists = [[1, 2], None, [3, None]]
    assert hashes(x=pa.array(lists, type)) == hashes(x=pa.array(lists, pa.list_(pa.int64())))


def test_maps_and_extension_types_are_hashed_too() -> None:
    maps = pa.array([[("a", 1)], [("a", 2)], [], None], pa.map_(pa.string(), pa.int64()))
    assert len(set(hashes(x=maps))) == 4
    assert len(set(hashes(x=pa.array([b"0" * 16, b"1" * 16], pa.uuid())))) == 2


def test_a_repeated_value_is_equal_when_run_end_encoded() -> None:
    plain = pa.array([1, 1, None, 2])
    assert hashes(x=pa.compute.run_end_encode(plain)) == hashes(x=plain)


def test_the_fields_of_a_struct_have_no_order() -> None:
    assert hashes(x=pa.array([{"a": 1, "b": 2}])) == hashes(x=pa.array([{"b": 2, "a": 1}]))


def test_columns_have_no_order_and_fields_choose_among_them() -> None:
    batch = pa.record_batch({"a": ["x"], "b": [1], "c": [0.5]})
    turned = batch.select(["c", "a", "b"])
    assert content_hash(batch) == content_hash(turned) == content_hash(batch, ["b", "c", "a"])
    assert content_hash(batch, ["a", "b"]) == content_hash(batch.select(["a", "b"]))
    assert content_hash(batch, ["a", "b"]) != content_hash(batch)


def test_a_field_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        content_hash(pa.record_batch({"a": ["x"]}), ["b"])


def test_a_column_that_a_source_gains_changes_only_records_with_a_value_in_it() -> None:
    before = hashes(a=["x", "y"], c=[1, 2])
    after = hashes(a=["x", "y"], b=pa.array([None, "new"]), c=[1, 2], d=pa.nulls(2))
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_what_lies_below_a_null_does_not_matter() -> None:
    validity = pa.py_buffer(b"\x01")
    numbers = pa.Array.from_buffers(pa.int64(), 2, [validity, pa.py_buffer(np.array([1, 99]))])
    assert hashes(x=numbers) == hashes(x=pa.array([1, None]))
    offsets = pa.py_buffer(np.array([0, 1, 5], np.int32))
    text = pa.Array.from_buffers(pa.string(), 2, [validity, offsets, pa.py_buffer(b"agone")])
    assert hashes(x=text) == hashes(x=pa.array(["a", None]))
    lists = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [validity, offsets], children=[pa.array([1, 2, 3, 4, 5])])
    assert hashes(x=lists) == hashes(x=pa.array([[1], None]))
    struct_ = pa.Array.from_buffers(pa.struct({"a": pa.int64()}), 2, [validity], children=[pa.array([1, 99])])
    assert hashes(x=struct_) == hashes(x=pa.array([{"a": 1}, None]))


def test_no_rows_have_no_hashes() -> None:
    assert hashes(x=pa.array([], pa.string()), y=pa.array([], pa.list_(pa.int64()))) == []


ROW = st.tuples(
    st.none() | st.integers(-3, 3),
    st.none() | st.text("ab", max_size=2),
    st.none() | st.lists(st.none() | st.text("ab", max_size=2), max_size=2),
    st.none() | st.fixed_dictionaries({"p": st.none() | st.booleans(), "q": st.none() | st.binary(max_size=1)}),
    st.none() | st.decimals(-1, 1, places=1),
)
TYPES = (
    pa.int64(),
    pa.string(),
    pa.list_(pa.string()),
    pa.struct({"p": pa.bool_(), "q": pa.binary()}),
    pa.decimal128(3, 1),
)


def batch_of(rows: list[tuple[Any, ...]]) -> Any:
    columns = list(zip(*rows, strict=True)) or [()] * len(TYPES)
    return pa.record_batch(
        {f"c{place}": pa.array(values, type) for place, (values, type) in enumerate(zip(columns, TYPES, strict=True))}
    )


@given(st.lists(ROW, max_size=30))
def test_two_records_have_one_hash_if_and_only_if_they_are_equal(rows: list[tuple[Any, ...]]) -> None:
    found = content_hash(batch_of(rows)).to_pylist()
    meanings = [repr((*row[:3], row[3] and sorted(row[3].items()), None if row[4] is None else row[4] + 0)) for row in rows]
    assert len(set(found)) == len(set(meanings)) == len(set(zip(found, meanings, strict=True)))


@given(st.lists(ROW, min_size=1, max_size=30), st.data(), st.integers(1, 7))
def test_a_record_has_the_same_hash_in_every_batch(rows: list[tuple[Any, ...]], data: st.DataObject, at_once: int) -> None:
    whole = content_hash(batch_of(rows)).to_pylist()
    start = data.draw(st.integers(0, len(rows) - 1))
    assert content_hash(batch_of(rows).slice(start, 5)).to_pylist() == whole[start : start + 5]
    assert content_hash(batch_of(rows[start:])).to_pylist() == whole[start:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope, "ROWS_AT_ONCE", at_once)
        assert content_hash(batch_of(rows)).to_pylist() == whole
