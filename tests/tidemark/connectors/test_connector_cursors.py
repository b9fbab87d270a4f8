# ruff: noqa: DTZ001 - wall clocks without a zone are what is tested
"""Cursors are compared as what they mean and printed as they came."""

import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.connectors.cursors import Cursor, field_text
from tidemark.connectors.durations import Duration
from tidemark.errors import CursorInvalid

pytestmark = pytest.mark.fast

SECOND = 10**9
BERLIN = "Europe/Berlin"


def at(text: object, zone: str | None = None) -> Cursor:
    return Cursor.parse("timestamp", text, zone=zone, stream="sap.gl", field="LastUpdated")


@st.composite
def written_instants(draw: st.DrawFn) -> tuple[str, int]:
    """A timestamp in some precision and offset, and its nanoseconds since 1970 by plain arithmetic."""
    wall = draw(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))).replace(microsecond=0)
    digits = draw(st.integers(0, 9))
    fraction = f"{draw(st.integers(0, 10**9 - 1)):09}"[:digits]
    offset = draw(st.sampled_from([0, 60, -330, 840, -720, 345]))
    spelled = "Z" if offset == 0 else f"{'+' if offset > 0 else '-'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
    text = wall.isoformat(draw(st.sampled_from("T "))) + (f".{fraction}" if digits else "") + spelled
    seconds = (wall - datetime(1970, 1, 1)) // timedelta(seconds=1) - offset * 60
    return text, seconds * SECOND + int(fraction.ljust(9, "0"))


@given(written_instants(), written_instants())
def test_timestamps_order_as_their_nanoseconds_do(one: tuple[str, int], two: tuple[str, int]) -> None:
    (first, early), (second, late) = one, two
    assert (at(first) < at(second)) == (early < late)
    assert (at(first) == at(second)) == (early == late)
    assert (at(first) >= at(second)) == (early >= late)


@given(written_instants())
def test_a_timestamp_prints_as_it_came_and_reads_back(written: tuple[str, int]) -> None:
    text, nanoseconds = written
    assert str(at(text)) == text
    assert at(str(at(text))) == at(text)
    assert at(text).order == nanoseconds


@given(written_instants(), st.integers(1, 10**18))
def test_a_safety_window_goes_back_at_least_its_length_and_less_than_a_tick_more(
    written: tuple[str, int], span: int
) -> None:
    text, nanoseconds = written
    earlier = at(text).minus(Duration(span, "…"))
    tick = at(text).timestamp.form.unit  # type: ignore[union-attr]
    assert nanoseconds - span - tick < earlier.order <= nanoseconds - span
    assert len(str(earlier)) == len(text)
    assert at(str(earlier)) == earlier


@given(st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)), st.integers(1, 400 * 86_400 * SECOND))
def test_a_safety_window_in_a_zone_is_never_too_short(wall: datetime, span: int) -> None:
    try:
        cursor = at(wall, BERLIN)
    except CursorInvalid:
        return  # one of the hours that the zone skips
    earlier = cursor.minus(Duration(span, "…"))
    assert earlier.order <= cursor.order - span
    assert at(str(earlier), BERLIN) == earlier


def test_a_longer_fraction_is_later_although_it_sorts_before_as_text() -> None:
    assert at("2025-10-02T11:20:45.95Z") > at("2025-10-02T11:20:45.9Z")
    assert at("2025-10-02T11:20:45.90Z") == at("2025-10-02T11:20:45.9Z")
    assert hash(at("2025-10-02T11:20:45.90Z")) == hash(at("2025-10-02T11:20:45.9Z"))
    assert str(at("2025-10-02T11:20:45.90Z")) == "2025-10-02T11:20:45.90Z"


def test_nanoseconds_are_kept_apart() -> None:
    assert at("2025-10-02T11:20:45.000000001Z") > at("2025-10-02T11:20:45Z")


@pytest.mark.parametrize(
    ("text", "span", "expected"),
    [
        ("2025-10-02T11:20:45Z", "PT5M", "2025-10-02T11:15:45Z"),
        ("2025-10-02T11:20:45Z", "PT0.5S", "2025-10-02T11:20:44Z"),
        ("2025-10-02T11:20:45.9Z", "PT0.05S", "2025-10-02T11:20:45.8Z"),
        ("2025-10-02 00:01+0200", "PT5M", "2025-10-01 23:56+0200"),
        ("2025-10-02", "PT5M", "2025-10-01"),
        ("0001-01-01T00:00:00Z", "P1D", "0001-01-01T00:00:00Z"),
    ],
)
def test_a_safety_window_keeps_the_form_and_rounds_down(text: str, span: str, expected: str) -> None:
    assert str(at(text).minus(Duration.parse(span))) == expected


def test_no_safety_window_leaves_the_cursor_as_it_is() -> None:
    cursor = at("2025-10-02T11:20:45Z")
    assert cursor.minus(Duration.parse("PT0S")) is cursor


def test_a_time_without_offset_needs_a_declared_zone() -> None:
    with pytest.raises(CursorInvalid, match="cursor_zone"):
        at("2025-10-02T11:20:45")
    assert at("2025-10-02T11:20:45", BERLIN) == at("2025-10-02T09:20:45Z")
    assert at("2025-10-02T11:20:45Z", BERLIN) == at("2025-10-02T11:20:45Z")


def test_a_time_that_clocks_show_twice_means_the_first_of_the_two() -> None:
    assert at("2025-10-26T02:30:00", BERLIN) == at("2025-10-26T00:30:00Z")


def test_a_time_that_the_zone_skips_is_refused() -> None:
    with pytest.raises(CursorInvalid, match="skips"):
        at("2025-03-30T02:30:00", BERLIN)


def test_a_day_begins_at_midnight_of_its_zone() -> None:
    assert at("2025-10-02") == at("2025-10-02T00:00:00Z")
    assert at(date(2025, 10, 2), BERLIN) == at("2025-10-01T22:00:00Z")
    assert at("2018-11-04", "America/Sao_Paulo") == at("2018-11-04T03:00:00Z")  # midnight was skipped there


def test_datetime_objects_are_instants_too() -> None:
    assert str(at(datetime(2025, 10, 2, 11, 20, 45, tzinfo=UTC))) == "2025-10-02T11:20:45Z"
    east = datetime(2025, 10, 2, 13, 20, 45, 950_000, tzinfo=timezone(timedelta(hours=2)))
    assert at(east) == at("2025-10-02T11:20:45.95Z")
    with pytest.raises(CursorInvalid):
        at(datetime(2025, 10, 2))


@given(st.integers(), st.integers())
def test_integers_order_as_numbers_of_any_size(one: int, two: int) -> None:
    first, second = Cursor.parse("integer", one), Cursor.parse("integer", str(two))
    assert (first < second) == (one < two)
    assert str(second) == str(two)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_order_exactly(one: Decimal, two: Decimal) -> None:
    first, second = Cursor.parse("decimal", one), Cursor.parse("decimal", str(two))
    if max(abs(one.adjusted()), abs(two.adjusted())) < 1000:  # a fraction of a million digits is a slow oracle
        assert (first < second) == (Fraction(one) < Fraction(two))
    assert str(second) == str(two)
    assert Cursor.parse("decimal", str(second)) == second


@given(st.text(), st.text())
def test_text_orders_by_code_point(one: str, two: str) -> None:
    first, second = Cursor.parse("text", one), Cursor.parse("text", two)
    assert (first < second) == ([ord(letter) for letter in one] < [ord(letter) for letter in two])
    assert str(first) == one


@given(written_instants(), written_instants(), st.integers(), st.integers())
def test_composites_are_compared_part_by_part(one: tuple[str, int], two: tuple[str, int], a: int, b: int) -> None:
    types = ("timestamp", "integer")
    first = Cursor.parse(types, [one[0], a], field=("changed", "id"))
    second = Cursor.parse(types, (two[0], b), field=("changed", "id"))
    assert (first < second) == ((one[1], a) < (two[1], b))
    assert Cursor.parse(types, str(first)) == first
    assert str(Cursor.parse(types, str(first))) == str(first)


def test_a_safety_window_of_a_composite_takes_in_all_that_share_the_earlier_time() -> None:
    types = ("timestamp", "text")
    lower = Cursor.parse(types, ["2025-10-02T11:20:45Z", "b"]).minus(Duration.parse("PT5M"))
    assert str(lower) == '["2025-10-02T11:15:45Z"]'
    assert lower < Cursor.parse(types, ["2025-10-02T11:15:45Z", ""])
    assert lower > Cursor.parse(types, ["2025-10-02T11:15:44Z", "z"])


def test_the_name_of_a_composite_is_a_list_in_json() -> None:
    assert field_text("LastUpdated") == "LastUpdated"
    assert field_text(("a,b", "c")) == '["a,b","c"]'


@pytest.mark.parametrize(
    ("type", "raw"),
    [
        ("timestamp", "sesame-7"),
        ("timestamp", "2025-02-30T00:00:00Z"),
        ("timestamp", "2025-02-03T24:00:00Z"),
        ("timestamp", "2025-02-03T10:00:00.1234567890Z"),
        ("timestamp", "2025-02-03T10:00:00+25:00"),
        ("timestamp", "0001-01-01T00:00:00+01:00"),
        ("timestamp", "\u0662\u0660\u0662\u0665-10-02"),
        ("timestamp", 1_759_404_045),
        ("timestamp", True),
        ("timestamp", None),
        ("integer", "sesame-7"),
        ("integer", "1e3"),
        ("integer", True),
        ("integer", 7.0),
        ("integer", Decimal("7.5")),
        ("integer", Decimal("NaN")),
        ("integer", Decimal("1E+999999")),
        ("integer", None),
        ("integer", "9" * 5000),
        ("decimal", "sesame-7"),
        ("decimal", float("nan")),
        ("decimal", Decimal("NaN")),
        ("decimal", "NaN"),
        ("decimal", "Infinity"),
        ("decimal", float("inf")),
        ("decimal", False),
        ("decimal", None),
        ("text", 7),
        ("text", b"sesame-7"),
        ("text", None),
        ("text", True),
        ("text", "sesame-7\ud800"),
        (("timestamp", "integer"), "sesame-7"),
        (("timestamp", "integer"), []),
        (("timestamp", "integer"), ["2025-10-02", 7, 7]),
        (("timestamp", "integer"), ["2025-10-02", None]),
        (("timestamp", "integer"), None),
    ],
)
def test_a_value_of_another_kind_is_refused_without_being_repeated(type: object, raw: object) -> None:
    with pytest.raises(CursorInvalid) as refused:
        Cursor.parse(type, raw, stream="sap.gl", field="LastUpdated")  # type: ignore[arg-type]
    message = str(refused.value)
    assert message.startswith("sap.gl: ")
    assert "'LastUpdated'" in message
    assert "sesame" not in message
    assert "2025" not in message
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_cursors_of_two_types_are_never_compared() -> None:
    with pytest.raises(CursorInvalid, match=r"sap\.gl.*'LastUpdated' is timestamp and was compared with integer"):
        sorted([Cursor.parse("integer", 7), at("2025-10-02")])
    assert at("2025-10-02") != Cursor.parse("integer", at("2025-10-02").order)


def test_only_a_timestamp_has_a_safety_window() -> None:
    with pytest.raises(CursorInvalid, match="only a timestamp"):
        Cursor.parse("integer", 7).minus(Duration.parse("PT1S"))


def test_the_value_stays_out_of_repr() -> None:
    assert "2025" not in repr(at("2025-10-02"))
    assert "2025" not in repr(Cursor.parse(("timestamp", "text"), ["2025-10-02", "2025"]))


def test_a_cursor_travels_to_other_processes() -> None:
    cursor = Cursor.parse(("timestamp", "decimal"), ["2025-10-02T11:20:45.95Z", "1.50"])
    assert pickle.loads(pickle.dumps(cursor)) == cursor
    assert str(pickle.loads(pickle.dumps(cursor))) == str(cursor)


def test_decimals_closer_than_a_float_can_tell_are_kept_apart() -> None:
    assert Cursor.parse("decimal", "0.10000000000000000001") > Cursor.parse("decimal", "0.1")
    assert Cursor.parse("decimal", Decimal("1.50")) == Cursor.parse("decimal", 1.5)
    assert Cursor.parse("decimal", Decimal("1E+400")) > Cursor.parse("decimal", 1)


@pytest.mark.parametrize("type", ["timestamp", "integer", "decimal", "text"])
def test_null_and_switches_are_told_by_their_name(type: Any) -> None:
    with pytest.raises(CursorInvalid, match="is NULL; `null_cursor` in the manifest"):
        Cursor.parse(type, None)
    with pytest.raises(CursorInvalid, match="is true or false"):
        Cursor.parse(type, True)


@pytest.mark.parametrize("value", [float("nan"), Decimal("sNaN"), Decimal("-Infinity")])
def test_a_number_that_is_none_is_told_by_its_name(value: Any) -> None:
    with pytest.raises(CursorInvalid, match="is NaN or infinite"):
        Cursor.parse("decimal", value)


@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "Asia/Tokyo"])
def test_a_safety_window_ends_where_time_begins(zone: str) -> None:
    assert str(at("0001-01-02T12:00:00", zone).minus(Duration.parse("P30D"))).startswith("0001-01-01T")
