from datetime import timedelta

import pytest
import sqlalchemy as sa

from tidemark.control import RunRecord
from tidemark.control.schema import runs
from tidemark.errors import ChecksFailed, ControlError, RunAbandoned, StateError, UnknownRun, UsageError

SHOP = "catalog/shop"


def finished(control, *run_ids, status="published", subject=SHOP):
    for run_id in run_ids:
        control.runs.begin(subject, run_id)
        control.runs.finish(run_id, status)


def ids(records):
    return [record.run_id for record in records]


def test_a_run_begins_as_running(control, clock):
    begun = control.runs.begin(SHOP, "r1", dagster_run="d1", detail={"asked": "full"})

    assert begun == RunRecord(
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
        dagster_run="d1",
    )
    assert control.runs.history(SHOP) == [begun]


def test_a_running_run_takes_fields_and_its_details_add_up(control):
    control.runs.begin(SHOP, "r1", detail={"asked": "full"})
    control.runs.update("r1", mode="incremental", base_snapshot=2**62, detail={"counts": {"CREATED": 1}})
    changed = control.runs.update("r1", detail={"unknown": ["a.b", "große Straße 🚢"]})

    assert (changed.mode, changed.base_snapshot, changed.status) == ("incremental", 2**62, "running")
    assert changed.detail == {"asked": "full", "counts": {"CREATED": 1}, "unknown": ["a.b", "große Straße 🚢"]}


def test_a_finished_run_tells_when_and_how(control, clock):
    control.runs.begin(SHOP, "r1")
    clock.advance(timedelta(seconds=90))
    done = control.runs.finish("r1", "published", snapshot=8, marker="2026-01-02T03:04:05Z", detail={"read": 3})

    assert (done.status, done.snapshot, done.marker, done.detail) == (
        "published", 8, "2026-01-02T03:04:05Z", {"read": 3, "mark_version": 0},
    )  # fmt: skip
    assert done.finished_at - done.started_at == timedelta(seconds=90)


@pytest.mark.parametrize("status", ["published", "unchanged", "failed", "abandoned"])
def test_a_finished_run_cannot_be_changed_any_more(control, status):
    finished(control, "r1", status=status)
    before = control.runs.history(SHOP)

    with pytest.raises(StateError, match=f"r1 is {status}"):
        control.runs.update("r1", mode="full")
    with pytest.raises(StateError):
        control.runs.update("r1")
    with pytest.raises(StateError):
        control.runs.finish("r1", "published")
    assert control.runs.history(SHOP) == before


def test_a_run_that_was_never_begun_cannot_be_changed(control):
    with pytest.raises(UnknownRun, match="r9"):
        control.runs.update("r9", mode="full")


def test_a_run_finishes_only_in_a_known_way_and_with_known_fields(control):
    control.runs.begin(SHOP, "r1")
    for unknown in ("done", "rolled-back", "running"):
        with pytest.raises(ValueError, match="Allowed: published"):
            control.runs.finish("r1", unknown)
    with pytest.raises(TypeError, match="status"):
        control.runs.update("r1", status="published")
    assert control.runs.history(SHOP)[0].status == "running"


def test_a_run_that_is_begun_again_while_it_runs_stays_as_it_is(control, clock):
    first = control.runs.begin(SHOP, "r1", detail={"try": 1})
    clock.advance(timedelta(seconds=1))
    assert control.runs.begin(SHOP, "r1", detail={"try": 2}) == first


def test_a_run_id_is_used_once(control):
    finished(control, "r1")
    with pytest.raises(StateError, match="new run id"):
        control.runs.begin(SHOP, "r1")
    control.runs.begin(SHOP, "r2")
    with pytest.raises(StateError, match="new run id"):
        control.runs.begin("catalog/other", "r2")


def test_an_error_of_ours_is_recorded_with_its_words_and_a_foreign_one_by_name_only(control):
    for run_id in ("r1", "r2", "r3"):
        control.runs.begin(SHOP, run_id)
    assert control.runs.finish("r1", "failed", error=ChecksFailed("2 orphans")).error == "ChecksFailed: 2 orphans"
    assert control.runs.finish("r2", "failed", error=KeyError("password=hunter2")).error == "KeyError"
    assert control.runs.finish("r3", "failed", error="nul \x00 and \ud800").error == "nul \ufffd and ?"


def test_the_history_is_newest_first_and_of_one_subject(control):
    finished(control, "r1", "r2", "r3")
    finished(control, "other", subject="catalog/other")

    assert ids(control.runs.history(SHOP)) == ["r3", "r2", "r1"]
    assert ids(control.runs.history(SHOP, limit=2)) == ["r3", "r2"]
    assert control.runs.history("model/shop") == []


def test_the_latest_run_is_the_newest_that_counts(control):
    assert control.runs.latest(SHOP) is None
    finished(control, "r1")
    finished(control, "r2", status="failed")
    control.runs.begin(SHOP, "r3")

    assert control.runs.latest(SHOP).run_id == "r1"
    assert control.runs.latest(SHOP, statuses=("failed",)).run_id == "r2"


def test_a_run_is_found_by_id_by_its_beginning_and_counted_back(control):
    finished(control, "aa11", "ab22", "ab2", "AB99")
    finished(control, "ac33", status="failed")

    def found(name):
        return control.runs.find(SHOP, name).run_id

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
        control.runs.find(SHOP, "ab")
    assert several.value.exit_code == 2


@pytest.mark.parametrize("name", ["", "zz", "%", "aa1_", "latest~4", "latest~x", "AA11"])
def test_a_run_that_is_not_there_is_unknown(control, name):
    finished(control, "aa11")
    finished(control, "zz11", subject="catalog/other")
    with pytest.raises(UnknownRun, match=SHOP):
        control.runs.find(SHOP, name)


def test_runs_that_have_not_finished_are_listed_oldest_first(control):
    finished(control, "r1")
    for run_id in ("r2", "r3", "r4"):
        control.runs.begin(SHOP, run_id)
    control.runs.begin("catalog/other", "other")

    assert ids(control.runs.running(SHOP)) == ["r2", "r3", "r4"]
    control.runs.finish("r3", "failed")
    assert ids(control.runs.running(SHOP)) == ["r2", "r4"]
    assert control.runs.running("catalog/unknown") == []


def test_a_run_that_was_abandoned_always_says_so(control, clock):
    for run_id in ("r1", "r2"):
        control.runs.begin(SHOP, run_id)
    clock.advance(timedelta(minutes=1))

    silent = control.runs.finish("r1", "abandoned")
    assert silent.error.startswith("RunAbandoned: ")
    assert silent.finished_at == clock.now()
    assert control.runs.finish("r2", "abandoned", error=RunAbandoned("its host is gone")).error == (
        "RunAbandoned: its host is gone"
    )


def test_the_database_itself_refuses_an_abandoned_run_without_a_reason(control):
    control.runs.begin(SHOP, "r1")
    with pytest.raises(ControlError), control._transactions.writing() as connection:
        connection.execute(sa.update(runs).values(status="abandoned"))


def test_the_newest_runs_of_all_subjects_come_with_those_that_count(control):
    assert control.runs.newest() == []
    finished(control, "s1", "s2")
    finished(control, "s3", status="failed")
    finished(control, "m1", subject="model/silver.carts")
    control.runs.begin("stream/t1/shop/carts", "c1")

    told = [(new.newest.subject, new.newest.run_id, new.counting and new.counting.run_id) for new in control.runs.newest()]
    assert told == [
        (SHOP, "s3", "s2"),
        ("model/silver.carts", "m1", "m1"),
        ("stream/t1/shop/carts", "c1", None),
    ]


def test_the_newest_runs_take_two_queries_however_many_subjects_there_are(control):
    for number in range(30):
        finished(control, f"r{number}", subject=f"catalog/c{number}")
    seen = []
    sa.event.listen(control._transactions._engine, "before_cursor_execute", lambda *call: seen.append(call[2]))

    assert len(control.runs.newest()) == 30
    assert len([statement for statement in seen if "tidemark_runs" in statement]) == 2


def test_upkeep_that_succeeded_is_neither_the_latest_run_nor_the_newest(control):
    finished(control, "s1", "s2")
    finished(control, "s3", status="failed")
    control.runs.begin(SHOP, "upkeep-1")
    control.runs.finish("upkeep-1", "published", mode="upkeep")

    assert control.runs.find(SHOP, "latest").run_id == "s2"
    assert control.runs.find(SHOP, "latest~1").run_id == "s1"
    assert control.runs.latest(SHOP).run_id == "s2"
    (shop,) = control.runs.newest()
    assert (shop.newest.run_id, shop.counting.run_id) == ("s3", "s2")

    control.runs.begin(SHOP, "upkeep-2")
    control.runs.finish("upkeep-2", "failed", mode="upkeep", error="LakeError: away")
    assert control.runs.newest()[0].newest.run_id == "upkeep-2", "upkeep that failed is somebody's business"


def test_to_read_creates_nothing(control, control_url, tmp_path, kind):
    assert (control.exists, control.runs.newest(), control.leases.held()) == (False, [], [])
    assert control.marks.get("catalog/shop") is None
    assert control.exists is False
    assert list(tmp_path.iterdir()) == []
    if kind == "postgresql":
        engine = sa.create_engine(control_url.replace("postgresql:", "postgresql+psycopg:"))
        assert sa.inspect(engine).get_table_names() == []
        engine.dispose()
    control.runs.begin("catalog/shop", "r1")
    assert [each.newest.run_id for each in control.runs.newest()] == ["r1"]
    assert control.exists is True


# --- forgetting ------------------------------------------------------------------------------------------------------


def test_old_runs_are_forgotten_but_for_the_newest_the_young_and_the_kept(control, clock):
    finished(control, *(f"r{number}" for number in range(10)))
    finished(control, "other", subject="catalog/other")
    clock.advance(timedelta(days=2))
    finished(control, "young")
    removed = control.runs.forget(SHOP, newest=3, before=clock.now() - timedelta(days=1), kept={"r1", "of another ledger"})
    assert removed == 7
    assert ids(control.runs.history(SHOP)) == ["young", "r9", "r8", "r1"]
    assert ids(control.runs.history("catalog/other")) == ["other"]


def test_of_every_kind_of_run_the_newest_stays_and_one_that_runs_always(control, clock):
    for run_id, mode, status in (
        ("a", "full", "published"), ("b", "incremental", "published"), ("c", "incremental", "failed"),
        ("d", "incremental", "published"), ("e", "upkeep", "unchanged"), ("f", "upkeep", "unchanged"),
    ):  # fmt: skip
        control.runs.begin(SHOP, run_id)
        control.runs.finish(run_id, status, mode=mode)
    control.runs.begin(SHOP, "stuck")
    clock.advance(timedelta(days=9))
    finished(control, "now")
    assert control.runs.forget(SHOP, newest=1, before=clock.now() - timedelta(days=1), kept=()) == 2
    assert ids(control.runs.history(SHOP)) == ["now", "stuck", "f", "d", "c", "a"]


def test_values_of_the_mark_stay_as_far_as_runs_that_stay_need_them(control, clock):
    for number in range(1, 7):
        clock.advance(timedelta(hours=1))
        control.runs.begin(SHOP, f"r{number}")
        clock.advance(timedelta(minutes=1))
        control.marks.move(SHOP, number - 1 or None, f"v{number}", run_id=f"r{number}", actor="me", reason="run")
        control.runs.finish(f"r{number}", "published", snapshot=number)
    clock.advance(timedelta(days=9))
    before = clock.now() - timedelta(days=1)
    assert control.forget(SHOP, newest=1, before=before, kept={"r4"}) == (4, 2)
    assert control.marks.value_of(SHOP, 4) == "v4"
    assert control.marks.get(SHOP).value == "v6"
    with pytest.raises(UsageError, match="no value of version 2"):
        control.marks.value_of(SHOP, 2)
    assert len(control.marks.audit(SHOP)) == 6, "who moved it stays on record"
    assert control.forget(SHOP, newest=1, before=before, kept={"r4"}) == (0, 0)
