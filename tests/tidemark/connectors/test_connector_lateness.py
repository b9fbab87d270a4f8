"""How late records are, counted in buckets, and the safety window that follows."""

from datetime import timedelta
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from tidemark.connectors.durations import Duration
from tidemark.connectors.lateness import EDGES, NAMES, NONE, added, iso, late_counts, markdown, plot, suggested_window

pytestmark = pytest.mark.fast

SECOND = 1_000_000


def counted(*seconds: float) -> dict[str, int]:
    committed = 1_000_000 * SECOND
    cursors = pa.array([None, *(int(committed - each * SECOND) for each in seconds)], pa.int64())
    return {name: count for name, count in zip(NAMES, late_counts(cursors, committed), strict=True) if count}


def test_a_record_at_or_after_the_committed_cursor_is_not_late() -> None:
    assert counted(0, -5) == {}


def test_a_late_record_counts_in_the_bucket_that_takes_it_in() -> None:
    assert counted(0.000001, 1, 1.000001, 60, 61, 40 * 86400) == {"1 s": 2, "5 s": 1, "1 min": 1, "5 min": 1, "more": 1}


def test_the_suggested_window_takes_in_nearly_all_late_records() -> None:
    few, many = [0] * len(NAMES), [0] * len(NAMES)
    few[3], few[6] = 999, 1
    many[3], many[6] = 998, 2
    assert suggested_window(few) == timedelta(minutes=1)
    assert suggested_window(many) == timedelta(hours=1)
    assert suggested_window(NONE) is None


def test_histograms_of_runs_add_up() -> None:
    assert added([]) == NONE
    assert added([(1,) * len(NAMES), (2,) * len(NAMES)]) == (3,) * len(NAMES)


@pytest.mark.parametrize("seconds", EDGES)
def test_a_window_is_written_as_a_manifest_takes_it(seconds: int) -> None:
    assert Duration.parse(iso(timedelta(seconds=seconds))).nanoseconds == seconds * 10**9


def test_the_text_for_people_names_the_buckets_that_have_something() -> None:
    assert markdown(NONE) == "no record was late"
    some = [0] * len(NAMES)
    some[0], some[4] = 1, 40
    assert markdown(some).splitlines()[2:] == ["| 1 s | 1 | █ |", f"| 5 min | 40 | {'█' * 20} |"]


def test_the_plot_is_a_picture_with_a_bar_and_a_count_for_each_bucket() -> None:
    picture = ElementTree.fromstring(plot(range(len(NAMES)), "t1/shop/orders"))
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    bars = [
        float(each.get("height", 0))
        for each in picture.iter("{http://www.w3.org/2000/svg}rect")
        if each.get("fill") != "white"
    ]
    assert texts[0] == "t1/shop/orders"
    assert texts[1::2] == [str(count) for count in range(len(NAMES))]
    assert bars == sorted(bars)
    assert bars[0] == 0
