import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.config.cron import SHORT_FORMS, checked_cron

GOOD = [
    "0 * * * *",
    "*/15 * * * *",
    "0,30 8-18 * * 1-5",
    "5 4 * * sun",
    "0 0 1 jan,jul *",
    "0 0 29 2 *",
    "0 0 30,31 2,4 *",
    "0/20 0-12/3 * * mon-fri",
    "59 23 31 12 7",
    *SHORT_FORMS,
]

BAD = [
    "",
    "hourly",
    "@reboot",
    "* * * *",
    "* * * * * *",
    "60 * * * *",
    "* 24 * * *",
    "* * 0 * *",
    "* * 32 * *",
    "* * * 13 *",
    "* * * * 8",
    "*/0 * * * *",
    "5-1 * * * *",
    "1,,2 * * * *",
    "-1 * * * *",
    "* * * * mon-",
    "* * * foo *",
    "* mon * * *",
    "0 0 30 2 *",
    "0 0 31 2 1",
    "0 0 31 4,6,9,11 *",
    "² * * * *",
    "* * * * 1;2",
]


@pytest.mark.fast
@pytest.mark.parametrize("expression", GOOD)
def test_an_expression_that_everybody_reads_alike_is_taken(expression):
    assert checked_cron(f"  {expression.upper()} ") == expression


@pytest.mark.fast
@pytest.mark.parametrize("expression", BAD)
def test_an_expression_that_is_wrong_or_never_comes_is_refused(expression):
    with pytest.raises(ValueError, match="Allowed: five fields"):
        checked_cron(expression)


def field(least: int, greatest: int) -> st.SearchStrategy[str]:
    number = st.integers(least, greatest)
    spread = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    item = st.one_of(st.just("*"), number.map(str), spread)
    stepped = st.tuples(item, st.integers(1, 99)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.lists(st.one_of(item, stepped), min_size=1, max_size=3).map(",".join)


expressions = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).map(" ".join)


@settings(deadline=None)
@given(st.one_of(st.sampled_from(GOOD), expressions))
def test_dagster_takes_what_we_take(expression):
    from dagster._utils.schedules import is_valid_cron_schedule

    try:
        taken = checked_cron(expression)
    except ValueError:
        return
    assert is_valid_cron_schedule(taken)
