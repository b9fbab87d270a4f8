"""marker.txt, and the closed list of reasons for a full run."""

import inspect
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidemark.catalog.marker import EARLIEST, Marker, MarkerFile, format_marker, parse_marker, preponed
from tidemark.catalog.mode import Situation, decide
from tidemark.catalog.published import latest_of
from tidemark.errors import LostRace, MarkerCorrupt
from tidemark.runs import Mode, Reason
from tidemark.store import open_store

pytestmark = pytest.mark.fast

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def situation(**changes: object) -> Situation:
    usual = {
        "forced": False,
        "enabled": True,
        "has_state": True,
        "marker": Marker(NOON, "etag"),
        "recorded": NOON,
        "now": NOON,
        "identity_before": "a",
        "identity_now": "a",
    }
    return Situation(**usual | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"forced": True}, Reason.REQUESTED),
        ({"enabled": False}, Reason.INCREMENTAL_OFF),
        ({"has_state": False}, Reason.NO_STATE),
        ({"marker": Marker(None, None)}, Reason.NO_MARKER),
        ({"marker": Marker(None, "etag", corrupt=True)}, Reason.CORRUPT_MARKER),
        ({"marker": Marker(NOON + timedelta(hours=25), "etag")}, Reason.FUTURE_MARKER),
        ({"marker": Marker(NOON + timedelta(seconds=1), "etag")}, Reason.MARKER_AHEAD),
        ({"recorded": None}, Reason.MARKER_AHEAD),
        ({"identity_now": "b"}, Reason.SOURCE_REPLACED),
    ],
)
def test_every_reason_for_a_full_run(changes: dict[str, object], reason: Reason) -> None:
    assert decide(situation(**changes)) == (Mode.FULL, reason)


def test_a_marker_that_agrees_with_the_state_makes_the_run_incremental() -> None:
    assert decide(situation()) == (Mode.INCREMENTAL, Reason.STATE_FOUND)


def test_an_old_marker_on_a_newer_state_is_safe() -> None:
    assert decide(situation(marker=Marker(NOON - timedelta(days=9), "etag")))[0] is Mode.INCREMENTAL


def test_every_reason_of_the_catalogue_is_tried_above() -> None:
    named = {Reason[name] for name in re.findall(r"Reason\.(\w+)", inspect.getsource(decide))}
    tried = {Reason.REQUESTED, Reason.INCREMENTAL_OFF, Reason.NO_STATE, Reason.NO_MARKER, Reason.CORRUPT_MARKER,
             Reason.FUTURE_MARKER, Reason.MARKER_AHEAD, Reason.SOURCE_REPLACED, Reason.STATE_FOUND}  # fmt: skip
    assert tried == named


@pytest.mark.parametrize(
    "text",
    ["2024-06-15T00:00:00Z", "2024-06-15T00:00:00+00:00", "2024-06-15T00:00:00.5Z", "2024-06-15T00:00:00Z\n"],
)
def test_the_documented_form_is_read(text: str) -> None:
    assert parse_marker(text).tzinfo == UTC


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2024-06-15", "2024-06-15T00:00:00", "2024-06-15T00:00:00+02:00", "2024-13-45T00:00:00Z",
     "2024-06-15T00:00:00Z; DROP TABLE x", "2024-06-15T00:00:00Z\n2024-06-16T00:00:00Z", "2024-06-15T25:00:00Z"],
)  # fmt: skip
def test_anything_else_is_corrupt(text: str) -> None:
    with pytest.raises(MarkerCorrupt):
        parse_marker(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T23:59:59.999999Z"])
def test_a_marker_before_any_catalogue_is_corrupt(text: str, tmp_path: Path) -> None:
    with pytest.raises(MarkerCorrupt, match="1970-01-02"):
        parse_marker(text)
    (tmp_path / "marker.txt").write_text(text + "\n")
    found = MarkerFile(open_store(str(tmp_path)), "marker.txt").read()
    assert (found.moment, found.corrupt) == (None, True)
    assert latest_of([text, "2026-01-01T12:00:00Z"]) == NOON
    assert latest_of([text]) is None


@pytest.mark.parametrize("hours", [3, 24 * 365 * 3000, 10**30])
def test_the_earliest_marker_can_be_preponed_by_any_number_of_hours(hours: int) -> None:
    assert preponed(EARLIEST, hours) == EARLIEST


def test_a_marker_is_written_raw_and_preponed_only_on_reading(tmp_path: Path) -> None:
    file = MarkerFile(open_store(str(tmp_path)), "marker.txt")
    file.swap(file.read(), NOON)
    assert (tmp_path / "marker.txt").read_text() == "2026-01-01T12:00:00Z\n"
    assert file.read().moment == NOON
    assert preponed(NOON, 3) == NOON - timedelta(hours=3)
    assert parse_marker(format_marker(NOON)) == NOON


def test_a_marker_that_somebody_else_moved_is_not_swapped(tmp_path: Path) -> None:
    file = MarkerFile(open_store(str(tmp_path)), "marker.txt")
    read = file.read()
    file.swap(read, NOON)
    with pytest.raises(LostRace):
        file.swap(read, NOON + timedelta(hours=1))
    assert file.read().moment == NOON


def test_a_marker_of_no_text_at_all_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "marker.txt").write_bytes(b"\xff\xfe\x00")
    found = MarkerFile(open_store(str(tmp_path)), "marker.txt").read()
    assert found.corrupt
    assert found.moment is None
