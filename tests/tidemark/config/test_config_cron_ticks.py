"""When a schedule was last due, and when it is due next: as Dagster, which starts the runs, reckons it."""

from datetime import UTC, datetime, timedelta

import pytest
from dagster._utils.schedules import cron_string_iterator, reverse_cron_string_iterator
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.config.cron import checked_cron, last_tick, next_tick

pytestmark = pytest.mark.fast


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "now", "last", "following"),
    [
        ("0 * * * *", "2026-03-01T10:59:59", "2026-03-01T10:00", "2026-03-01T11:00"),
        ("0 * * * *", "2026-03-01T10:00:00", "2026-03-01T10:00", "2026-03-01T11:00"),
        ("*/15 9-17 * * mon-fri", "2026-03-01T12:00", "2026-02-27T17:45", "2026-03-02T09:00"),
        ("0 0 31 * *", "2026-03-01T00:00", "2026-01-31T00:00", "2026-03-31T00:00"),
        ("30 23 30 * *", "2026-03-01T00:00", "2026-01-30T23:30", "2026-03-30T23:30"),
        ("0 0 29 2 *", "2026-03-01T00:00", "2024-02-29T00:00", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2099-03-01T00:00", "2096-02-29T00:00", "2104-02-29T00:00"),
        ("0 0 1 1 *", "2026-01-01T00:00", "2026-01-01T00:00", "2027-01-01T00:00"),
        ("0 6 13 * fri", "2026-03-14T00:00", "2026-03-13T06:00", "2026-03-20T06:00"),  # either will do
        ("0 6 13 * *", "2026-03-14T00:00", "2026-03-13T06:00", "2026-04-13T06:00"),
        ("0 6 * * 7", "2026-03-14T00:00", "2026-03-08T06:00", "2026-03-15T06:00"),
        ("0 6 * * 0", "2026-03-14T00:00", "2026-03-08T06:00", "2026-03-15T06:00"),
        ("@hourly", "2026-03-14T00:30", "2026-03-14T00:00", "2026-03-14T01:00"),
        ("@daily", "2026-03-14T00:30", "2026-03-14T00:00", "2026-03-15T00:00"),
        ("@weekly", "2026-03-14T00:30", "2026-03-08T00:00", "2026-03-15T00:00"),
        ("@monthly", "2026-03-14T00:30", "2026-03-01T00:00", "2026-04-01T00:00"),
        ("@yearly", "2026-03-14T00:30", "2026-01-01T00:00", "2027-01-01T00:00"),
    ],
)
def test_the_last_and_the_next_tick_of_a_schedule(expression: str, now: str, last: str, following: str) -> None:
    assert last_tick(expression, at(now)) == at(last)
    assert next_tick(expression, at(now)) == at(following)


def test_a_moment_of_another_zone_is_the_same_moment() -> None:
    now = datetime.fromisoformat("2026-03-01T00:30:00+05:00")
    assert last_tick("0 0 * * *", now) == at("2026-02-28T00:00")


def a_field(least: int, greatest: int) -> st.SearchStrategy[str]:
    number = st.integers(least, greatest)
    # A range of one day of the week means every day to Dagster: a fault of its library that nobody will meet.
    ends = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1])
    ranges = ends.map(lambda pair: f"{pair[0]}-{pair[1]}")
    steps = st.integers(1, greatest).map(lambda step: f"*/{step}")
    return st.one_of(st.just("*"), number.map(str), ranges, steps, st.lists(number, min_size=1, max_size=3).map(
        lambda numbers: ",".join(map(str, numbers))
    ))  # fmt: skip


expressions = st.tuples(a_field(0, 59), a_field(0, 23), a_field(1, 28), a_field(1, 12), a_field(0, 6)).map(" ".join)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@settings(max_examples=60)
@given(expressions, moments)
@example("0 0 13 * 5", at("2026-03-14T00:00"))
@example("0 0 */2 * 1", at("2026-03-14T00:00"))
@example("0 0 1-28 * 1", at("2026-03-30T00:00"))
@example("0 0 13 * 0-6", at("2026-03-14T00:00"))
@example("0 0 */2 * 0-6", at("2026-03-14T00:00"))
@example("0 0 1-31 * */2", at("2026-03-14T00:00"))
@example("0 0 13 * */1", at("2026-03-14T00:00"))
@example("0 0 31 * 0-7", at("2026-03-14T00:00"))
def test_ticks_are_those_at_which_dagster_starts_runs(expression: str, now: datetime) -> None:
    now = now.replace(microsecond=0)
    text = checked_cron(expression)
    after = next_tick(text, now)
    assert after == next(iter(cron_string_iterator((now + timedelta(seconds=1)).timestamp(), text, "UTC")))
    before = last_tick(text, now)
    assert before == next(iter(reverse_cron_string_iterator(now.timestamp(), text, "UTC")))
