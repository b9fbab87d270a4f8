from datetime import timedelta

import pytest

from tidemark.control import RunRecord
from tidemark.errors import ChecksFailed, StateError, UnknownRun, UsageError

SHOP = "postgresql/1700000000"


def finished(control, *run_ids, status="published", subject=SHOP):
    for run_id in run_ids:
        control.runs.begin("catalog", subject, run_id)
        control.runs.finish(run_id, status)


def ids(records):
    return [record.run_id for record in records]


def test_a_run_begins_as_running(control, clock):
    begun = control.runs.begin("catalog", SHOP, "r1", {"asked": "full"})

    assert begun == RunRecord(
        system="catalog",
        subject=SHOP,
        run_id="r1",
        status="running",
        mode=None,
        reason=None,
        started_at=clock.now(),
        finished_at=None,
        base_snapshot=None,
        snapshot=None,
        marker=None,
        detail={"asked": "full"},
        error=None,
    )
    assert control.runs.history("catalog", SHOP) == [begun]


def test_a_running_run_takes_fields_and_its_details_add_up(control):
    control.runs.begin("catalog", SHOP, "r1", {"asked": "full"})
    control.runs.update("r1", mode="incremental", base_snapshot=2**62, detail={"counts": {"CREATED": 1}})
    changed = control.runs.update("r1", detail={"unknown": ["a.b", "große Straße 🚢"]})

    assert (changed.mode, changed.base_snapshot, changed.status) == ("incremental", 2**62, "running")
    assert changed.detail == {"asked": "full", "counts": {"CREATED": 1}, "unknown": ["a.b", "große Straße 🚢"]}


def test_a_finished_run_tells_when_and_how(control, clock):
    control.runs.begin("catalog", SHOP, "r1")
    clock.advance(timedelta(seconds=90))
    done = control.runs.finish("r1", "published", snapshot=8, marker="2026-01-02T03:04:05Z", detail={"read": 3})

    assert (done.status, done.snapshot, done.marker, done.detail) == (
        "published", 8, "2026-01-02T03:04:05Z", {"read": 3},
    )  # fmt: skip
    assert done.finished_at - done.started_at == timedelta(seconds=90)


@pytest.mark.parametrize("status", ["published", "unchanged", "failed", "rolled-back", "abandoned"])
def test_a_finished_run_cannot_be_changed_any_more(control, status):
    finished(control, "r1", status=status)
    before = control.runs.history("catalog", SHOP)

    with pytest.raises(StateError, match=f"r1 .* is {status}"):
        control.runs.update("r1", mode="full")
    with pytest.raises(StateError):
        control.runs.update("r1")
    with pytest.raises(StateError):
        control.runs.finish("r1", "published")
    assert control.runs.history("catalog", SHOP) == before


def test_a_run_that_was_never_begun_cannot_be_changed(control):
    with pytest.raises(UnknownRun, match="r9"):
        control.runs.update("r9", mode="full")


def test_a_run_finishes_only_in_a_known_way_and_with_known_fields(control):
    control.runs.begin("catalog", SHOP, "r1")
    with pytest.raises(ValueError, match="Allowed: published"):
        control.runs.finish("r1", "done")
    with pytest.raises(TypeError, match="status"):
        control.runs.update("r1", status="published")
    assert control.runs.history("catalog", SHOP)[0].status == "running"


def test_a_run_that_is_begun_again_while_it_runs_stays_as_it_is(control, clock):
    first = control.runs.begin("catalog", SHOP, "r1", {"try": 1})
    clock.advance(timedelta(seconds=1))
    assert control.runs.begin("catalog", SHOP, "r1", {"try": 2}) == first


def test_a_run_id_is_used_once(control):
    finished(control, "r1")
    with pytest.raises(StateError, match="new run id"):
        control.runs.begin("catalog", SHOP, "r1")
    control.runs.begin("catalog", SHOP, "r2")
    with pytest.raises(StateError, match="new run id"):
        control.runs.begin("catalog", "sqlite/2", "r2")


def test_an_error_of_ours_is_recorded_with_its_words_and_a_foreign_one_by_name_only(control):
    for run_id in ("r1", "r2", "r3"):
        control.runs.begin("catalog", SHOP, run_id)
    assert control.runs.finish("r1", "failed", error=ChecksFailed("2 orphans")).error == "ChecksFailed: 2 orphans"
    assert control.runs.finish("r2", "failed", error=KeyError("password=hunter2")).error == "KeyError"
    assert control.runs.finish("r3", "failed", error="nul \x00 and \ud800").error == "nul \ufffd and ?"


def test_the_history_is_newest_first_and_of_one_subject(control):
    finished(control, "r1", "r2", "r3")
    finished(control, "other", subject="sqlite/2")

    assert ids(control.runs.history("catalog", SHOP)) == ["r3", "r2", "r1"]
    assert ids(control.runs.history("catalog", SHOP, limit=2)) == ["r3", "r2"]
    assert control.runs.history("models", SHOP) == []


def test_the_latest_run_is_the_newest_that_counts(control):
    assert control.runs.latest("catalog", SHOP) is None
    finished(control, "r1")
    finished(control, "r2", status="failed")
    control.runs.begin("catalog", SHOP, "r3")

    assert control.runs.latest("catalog", SHOP).run_id == "r1"
    assert control.runs.latest("catalog", SHOP, statuses=("failed",)).run_id == "r2"


def test_a_run_is_found_by_id_by_its_beginning_and_counted_back(control):
    finished(control, "aa11", "ab22", "ab2", "AB99")
    finished(control, "ac33", status="failed")

    def found(name):
        return control.runs.find("catalog", SHOP, name).run_id

    assert found("aa11") == found("aa") == "aa11"
    assert found("ab2") == "ab2"  # exact, though another begins with it
    assert found("ab22") == "ab22"
    assert found("ac") == "ac33"
    assert found("latest") == found("latest~0") == found("AB") == "AB99"
    assert found("latest~1") == "ab2"
    assert found("latest~3") == "aa11"


def test_a_beginning_that_several_runs_share_names_them(control):
    finished(control, *(f"ab{number}" for number in range(7)))
    with pytest.raises(UsageError, match="ab6, ab5, ab4, ab3, ab2, …") as several:
        control.runs.find("catalog", SHOP, "ab")
    assert several.value.exit_code == 2


@pytest.mark.parametrize("name", ["", "zz", "%", "aa1_", "latest~4", "latest~x", "AA11"])
def test_a_run_that_is_not_there_is_unknown(control, name):
    finished(control, "aa11")
    finished(control, "zz11", subject="sqlite/2")
    with pytest.raises(UnknownRun, match=SHOP):
        control.runs.find("catalog", SHOP, name)


def test_runs_left_by_a_killed_process_are_abandoned(control, clock):
    finished(control, "r1")
    for run_id in ("r2", "r3", "r4"):
        control.runs.begin("catalog", SHOP, run_id)
    control.runs.begin("catalog", "sqlite/2", "other")

    assert control.runs.abandon_running("catalog", SHOP, "r4") == ["r2", "r3"]
    assert control.runs.abandon_running("catalog", SHOP, "r4") == []

    status = {run.run_id: run.status for run in control.runs.history("catalog", SHOP)}
    assert status == {"r1": "published", "r2": "abandoned", "r3": "abandoned", "r4": "running"}
    assert control.runs.find("catalog", SHOP, "r2").finished_at == clock.now()
    assert control.runs.find("catalog", "sqlite/2", "other").status == "running"
