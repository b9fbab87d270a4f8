"""The label of a unit, decided in one place."""

from datetime import UTC, datetime, timedelta

import pytest

from tidemark.catalog.labels import Before, Known, Seen, guard_removals, label, unique
from tidemark.catalog.rows import Label
from tidemark.catalog.scope import Scope
from tidemark.errors import DuplicateName, TooManyRemoved

pytestmark = pytest.mark.fast

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def known(digest: str = "d1", object_id: str = "1") -> Known:
    return Known("t", object_id, digest)


def seen(digest: str = "d1", object_id: str = "1", **times: datetime) -> Seen:
    return Seen("t", object_id, digest, times.get("created_at"), times.get("changed_at"))


def test_the_same_object_with_the_same_digest_did_not_change() -> None:
    assert label(known(), seen(), was_visible=True) is Label.NO_CHANGE


def test_another_digest_is_an_update() -> None:
    assert label(known(), seen("d2"), was_visible=True) is Label.UPDATED


def test_a_new_object_under_an_old_name_is_an_update_even_if_it_looks_the_same() -> None:
    assert label(known(), seen(object_id="2"), was_visible=True) is Label.UPDATED


def test_what_the_previous_run_would_have_seen_was_created_since() -> None:
    assert label(None, seen(), was_visible=True) is Label.CREATED


def test_what_the_previous_run_could_not_see_is_backfilled() -> None:
    assert label(None, seen(), was_visible=False) is Label.BACKFILL


def test_by_the_clock_what_is_older_than_the_marker_did_not_change() -> None:
    assert label(known(), seen("d2", changed_at=NOON - HOUR), was_visible=True, since=NOON) is Label.NO_CHANGE


def test_by_the_clock_a_change_at_the_marker_itself_counts() -> None:
    assert label(known(), seen("d2", changed_at=NOON), was_visible=True, since=NOON) is Label.UPDATED


def test_a_clock_that_moved_without_a_change_of_the_digest_is_no_change() -> None:
    assert label(known(), seen(changed_at=NOON + HOUR), was_visible=True, since=NOON) is Label.NO_CHANGE


def test_a_clock_cannot_tell_created_from_newly_in_scope_but_the_creation_time_can() -> None:
    assert label(None, seen(created_at=NOON - HOUR), was_visible=True, since=NOON) is Label.BACKFILL
    assert label(None, seen(created_at=NOON), was_visible=True, since=NOON) is Label.CREATED


def test_a_schema_that_could_not_be_listed_before_was_not_visible() -> None:
    before = Before(Scope(), frozenset({"default/x/1/db/s"}))
    assert not before.could_see("s", "t", "default/x/1/db/s")
    assert before.could_see("other", "t", "default/x/1/db/other")


def test_a_name_listed_twice_is_refused() -> None:
    with pytest.raises(DuplicateName, match="t twice"):
        unique([seen(), seen("d2")])


@pytest.mark.parametrize(
    ("before", "removed", "left", "stops"),
    [
        (100, 30, 70, False),
        (100, 31, 69, True),
        (20, 10, 10, False),  # half of them, but no more than ten
        (20, 11, 9, True),
        (5, 5, 0, True),  # a source that lists nothing is never believed
        (0, 0, 0, False),
    ],
)
def test_the_guard_stops_a_mass_removal(before: int, removed: int, left: int, stops: bool) -> None:
    if not stops:
        guard_removals(before, removed, left, 30, False, "shop")
        return
    with pytest.raises(TooManyRemoved, match=f"{removed} of {before}"):
        guard_removals(before, removed, left, 30, False, "shop")
    guard_removals(before, removed, left, 30, True, "shop")
