"""The rules of models without a lake: differences of schemas, steps of policies, chunks, values of state."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice

from tidemark.errors import ConfigError, SchemaChangeRefused
from tidemark.models.chunks import ranges_of
from tidemark.models.compare import compared
from tidemark.models.hashes import config_hash, sql_hash
from tidemark.models.policy import ORDER, Guard, decided
from tidemark.models.spec import Incremental, Parameter
from tidemark.models.steps import Step
from tidemark.models.values import from_text, in_type, to_text

pytestmark = pytest.mark.fast


def fields(**columns: ice.IcebergType) -> tuple[ice.NestedField, ...]:
    return tuple(ice.NestedField(number, name, of, required=False) for number, (name, of) in enumerate(columns.items(), 1))


@pytest.mark.parametrize(
    ("table", "query", "kind"),
    [
        (ice.IntegerType(), ice.LongType(), "wider"),
        (ice.LongType(), ice.IntegerType(), "narrower"),
        (ice.FloatType(), ice.DoubleType(), "wider"),
        (ice.DecimalType(5, 2), ice.DecimalType(7, 2), "wider"),
        (ice.DecimalType(7, 2), ice.DecimalType(5, 2), "narrower"),
        (ice.DecimalType(5, 2), ice.DecimalType(7, 3), "other"),
        (ice.DateType(), ice.TimestampType(), "wider"),
        (ice.TimestampType(), ice.TimestamptzType(), "other"),
        (ice.LongType(), ice.DoubleType(), "other"),
        (
            ice.MapType(1, ice.StringType(), 2, ice.IntegerType()),
            ice.MapType(1, ice.LongType(), 2, ice.IntegerType()),
            "other",
        ),
    ],
)
def test_a_type_is_wider_narrower_or_another(table: ice.IcebergType, query: ice.IcebergType, kind: str) -> None:
    (change,) = compared(fields(n=query), fields(n=table)).changes
    assert (change.kind, change.path) == (kind, ("n",))


def test_order_letter_case_and_nullability_are_no_change() -> None:
    table = (ice.NestedField(1, "Id", ice.IntegerType(), required=True), *fields(name=ice.StringType()))
    assert not compared(fields(NAME=ice.StringType(), ID=ice.IntegerType()), table)


def test_places_in_arrays_and_maps_are_told_by_their_path() -> None:
    def column(*names: str) -> ice.IcebergType:
        inner = ice.StructType(*fields(**{name: ice.IntegerType() for name in names}))
        return ice.ListType(7, ice.MapType(8, ice.StringType(), 9, inner), element_required=False)

    diff = compared(fields(c=column("a", "b")), fields(c=column("a", "old")))
    assert [(each.kind, each.path) for each in diff.changes] == [
        ("new", ("c", "element", "value", "b")),
        ("missing", ("c", "element", "value", "old")),
    ]


def test_what_takes_something_away_is_the_last_of_all() -> None:
    table = fields(gone=ice.StringType(), old=ice.IntegerType(), n=ice.IntegerType(), id=ice.IntegerType())
    query = fields(id=ice.IntegerType(), n=ice.LongType(), x=ice.DateType(), now=ice.IntegerType())
    decision = decided(compared(query, table), "sync_all_columns", Guard("shop.t", ("id",), renames={"old": "now"}))
    assert [(step.kind, step.name) for step in decision.steps] == [
        ("add", "x"), ("widen", "n"), ("rename", "old"), ("drop", "gone"),
    ]  # fmt: skip
    assert [step.destructive for step in decision.steps] == [False, False, False, True]
    assert ORDER.index("add") < ORDER.index("drop")


@pytest.mark.parametrize(
    ("guard", "role"),
    [
        (Guard("shop.t", keys=("GONE",)), "part of the key"),
        (Guard("shop.t", filter_column="gone"), "the filter column"),
        (Guard("shop.t", partition_columns=("gone",)), "a partition column"),
    ],
)
def test_a_column_with_a_role_is_never_dropped(guard: Guard, role: str) -> None:
    diff = compared(fields(id=ice.IntegerType()), fields(id=ice.IntegerType(), gone=ice.IntegerType()))
    with pytest.raises(SchemaChangeRefused, match=f"it is {role}"):
        decided(diff, "sync_all_columns", guard)


def parameter(step: object, start: object, end: object) -> Parameter:
    return Parameter.model_validate({"name": "@p", "column": "c", "start_value": start, "end_value": end, "step": step})


@given(
    start=st.dates(date(1990, 1, 1), date(2030, 12, 31)),
    days=st.integers(0, 2000),
    step=st.sampled_from(["1 day", "11 days", "1 week", "1 month", "1 quarter", "1 year", "P1M"]),
)
def test_chunks_touch_and_end_where_the_range_ends(start: date, days: int, step: str) -> None:
    end = start + timedelta(days=days)
    ranges = ranges_of(parameter(step, start, end), start, end)
    assert (ranges[0].start, ranges[-1].end) == (start, end)
    assert [each.closed for each in ranges] == [False] * (len(ranges) - 1) + [True]
    for one, other in pairwise(ranges):
        assert one.end == other.start
        assert one.start < one.end  # type: ignore[operator]


def test_months_are_the_calendars_and_the_31st_is_not_lost() -> None:
    month = Step.parse("1 month")
    assert [month.after(date(2024, 1, 31), times) for times in (1, 2, 3)] == [
        date(2024, 2, 29), date(2024, 3, 31), date(2024, 4, 30),
    ]  # fmt: skip
    assert Step.parse("0.5").after(1, 3) == Decimal("2.5")


@pytest.mark.parametrize(
    ("step", "start", "end", "words"),
    [
        (1, 5, 4, "start_value is beyond end_value"),
        ("1 day", 1, 9, "the column's values are numbers"),
        (1, date(2024, 1, 1), date(2024, 2, 1), "the column's values are moments"),
        ("1 hour", date(2024, 1, 1), date(2024, 2, 1), "whole days"),
        (0.5, 1, 9, "whole numbers"),
        (1, "1", "9", "the column's values are text"),
        ("1 second", datetime(2024, 1, 1, tzinfo=UTC), datetime(2034, 1, 1, tzinfo=UTC), "Use a longer step"),
    ],
)
def test_a_range_that_cannot_be_gone_through_is_named(step: object, start: object, end: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ranges_of(parameter(step, start, end), start, end)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [7, 1.5, Decimal("1.10"), "text", date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), None],
)
def test_a_value_of_state_comes_back_as_it_was(value: object) -> None:
    assert from_text(to_text(value)) == value  # type: ignore[arg-type]
    assert type(from_text(to_text(value))) is type(value)  # type: ignore[arg-type]


def test_what_a_person_writes_is_a_value_of_the_columns_type() -> None:
    assert in_type("2024-01-01", ice.TimestamptzType()) == datetime(2024, 1, 1, tzinfo=UTC)
    assert in_type("2024-01-01T02:00:00+02:00", ice.TimestampType()) == datetime.fromisoformat("2024-01-01T00:00:00")
    assert in_type("12", ice.LongType()) == 12
    with pytest.raises(ValueError, match="is no value of the type date"):
        in_type("soon", ice.DateType())


def test_hashes_see_meaning_only() -> None:
    assert sql_hash("SELECT a -- why\nFROM t") == sql_hash("select A from T;")
    assert sql_hash("SELECT 'a' FROM t") != sql_hash("SELECT 'A' FROM t")

    def options(**given: object) -> str:
        said = {"strategy": "append", "append": {"filter_column": "at", **given}}
        return config_hash(Incremental.model_validate(said))

    assert options() == options(lookback=3) == options(start_value=1)
    assert options() != options(unique_key="id")
