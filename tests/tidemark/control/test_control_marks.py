import multiprocessing
from datetime import timedelta
from multiprocessing.synchronize import Barrier

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tidemark.control import ControlDatabase, Mark, actor
from tidemark.control.schema import mark_audit
from tidemark.control.url import control_url as parsed_url
from tidemark.errors import ControlError, LeaseLost, MarkMoved
from tidemark.faults import InjectedFault

SHOP = "catalog/shop"
ROUNDS = 50


def move(control: ControlDatabase, expected: int | None, value: str, run_id: str = "r1") -> Mark:
    return control.marks.move(SHOP, expected, value, snapshot=7, run_id=run_id, actor="ann@ship", reason="run")


def test_a_subject_without_a_mark_has_none(control):
    assert control.marks.get(SHOP) is None
    assert control.marks.audit(SHOP) == []


def test_a_mark_is_read_back_as_it_was_moved(control, clock):
    moved = move(control, None, "2026-01-02T03:04:05Z")

    assert moved == Mark(SHOP, 1, "2026-01-02T03:04:05Z", None, 7, "r1", clock.now())
    assert control.marks.get(SHOP) == moved


def test_every_move_counts_the_version_up(control):
    move(control, None, "a")
    assert move(control, 1, "b").version == 2
    assert control.marks.get(SHOP).value == "b"


def test_a_mark_that_never_moved_is_at_version_0_and_moves_from_there(control):
    assert control.marks.version(SHOP) == 0
    assert move(control, 0, "a").version == 1
    assert control.marks.version(SHOP) == 1


@pytest.mark.parametrize("expected", [None, 0, 1, 3])
def test_a_move_from_another_version_is_refused_and_changes_nothing(control, expected):
    move(control, None, "a")
    before = move(control, 1, "b")

    with pytest.raises(MarkMoved, match=SHOP) as refused:
        move(control, expected, "secret value")

    assert "secret value" not in str(refused.value)
    assert control.marks.get(SHOP) == before
    assert len(control.marks.audit(SHOP)) == 2


def test_a_move_of_a_mark_that_does_not_exist_is_refused(control):
    with pytest.raises(MarkMoved):
        move(control, 1, "a")
    assert control.marks.get(SHOP) is None


def test_the_audit_tells_every_move_newest_first(control, clock):
    move(control, None, "a")
    clock.advance(timedelta(hours=1))
    control.marks.move(SHOP, 1, "b", snapshot=None, run_id=None, actor="bob@ship", reason="rewound by hand")

    newest, oldest = control.marks.audit(SHOP)
    assert (newest.kind, newest.from_version, newest.to_version) == ("commit", 1, 2)
    assert control.marks.value_of(SHOP, 2) == "b"
    assert (newest.actor, newest.reason, newest.run_id, newest.snapshot) == ("bob@ship", "rewound by hand", None, None)
    assert newest.at == clock.now()
    assert (oldest.from_version, oldest.to_version, oldest.run_id, oldest.snapshot) == (None, 1, "r1", 7)
    assert newest.id > oldest.id


def test_a_move_whose_audit_row_cannot_be_written_did_not_happen(control):
    move(control, None, "a")

    with pytest.raises(ControlError) as failed:
        control.marks.move(SHOP, 1, "a state", snapshot=7, run_id="r2", actor="ann@ship", reason=None)  # type: ignore[arg-type]

    assert "a state" not in str(failed.value)  # PostgreSQL quotes the whole row
    assert control.marks.get(SHOP).version == 1


def test_subjects_do_not_touch_one_another(control):
    move(control, None, "a")
    control.marks.move("catalog/other", None, "z", snapshot=1, run_id="r2", actor="ann@ship", reason="run")

    assert control.marks.get(SHOP).value == "a"
    assert [row.subject for row in control.marks.audit("catalog/other")] == ["catalog/other"]
    assert [mark.value for mark in control.marks.list()] == ["z", "a"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tidemark_mark_audit SET reason = 'other'",
        "DELETE FROM tidemark_mark_audit",
        "DELETE FROM tidemark_mark_audit WHERE to_version = 1",
    ],
)
def test_audit_rows_cannot_be_changed_or_deleted(control, control_url, statement):
    move(control, None, "a")
    assert_refused(control_url, statement)
    assert control.marks.audit(SHOP)[0].reason == "run"


def test_audit_rows_cannot_be_replaced_or_truncated(control, control_url):
    move(control, None, "a")
    row = control.marks.audit(SHOP)[0]
    if control_url.startswith("sqlite"):
        copied = "INSERT OR REPLACE INTO tidemark_mark_audit SELECT {} FROM tidemark_mark_audit"
        columns = [column.name for column in mark_audit.columns]
        assert_refused(control_url, copied.format(", ".join("'x'" if c == "reason" else c for c in columns)))
        assert_refused(control_url, copied.format(", ".join("id + 1" if c == "id" else c for c in columns)))
    else:
        assert_refused(control_url, "TRUNCATE tidemark_mark_audit")
    assert control.marks.audit(SHOP) == [row]


def assert_refused(control_url: str, statement: str) -> None:
    engine = sa.create_engine(parsed_url(control_url))
    with engine.connect() as connection, pytest.raises(DBAPIError, match="append-only"):
        connection.execute(sa.text(statement))
    engine.dispose()


def race(control: ControlDatabase, name: str, line: Barrier, results: multiprocessing.Queue) -> None:
    won = []
    for _ in range(ROUNDS):
        mark = control.marks.get(SHOP)
        line.wait(60)  # both have read the same version
        try:
            control.marks.move(SHOP, mark and mark.version, name, snapshot=None, run_id=name, actor=actor(), reason="race")
            won.append(True)
        except MarkMoved:
            won.append(False)
        line.wait(60)
    results.put((name, won))


def test_of_two_processes_that_move_a_mark_at_once_one_wins_every_time(control):
    control.migrate()
    spawn = multiprocessing.get_context("spawn")
    line, results = spawn.Barrier(2), spawn.Queue()
    racers = [spawn.Process(target=race, args=(control, name, line, results)) for name in ("one", "two")]
    for racer in racers:
        racer.start()
    won = dict(results.get(timeout=60) for _ in racers)
    for racer in racers:
        racer.join(60)

    assert [one + two for one, two in zip(won["one"], won["two"], strict=True)] == [1] * ROUNDS
    audit = control.marks.audit(SHOP)
    assert [row.to_version for row in audit] == list(range(ROUNDS, 0, -1))
    assert [row.run_id for row in reversed(audit)] == ["one" if first else "two" for first in won["one"]]


def test_moments_are_kept_to_the_microsecond_and_in_utc(control, clock):
    mark = move(control, None, "a")
    assert control.marks.get(SHOP).moved_at == mark.moved_at == clock.now()
    assert control.marks.get(SHOP).moved_at.utcoffset() == timedelta(0)


@pytest.mark.parametrize(("point", "moved"), [("control.before_mark_move", False), ("control.after_mark_move", True)])
def test_a_run_that_dies_around_a_move_has_moved_the_mark_wholly_or_not_at_all(control, monkeypatch, point, moved):
    monkeypatch.setenv("TIDEMARK_FAULT", f"{point}:raise")
    with pytest.raises(InjectedFault):
        move(control, None, "a")
    assert (control.marks.get(SHOP) is not None) == moved
    assert (len(control.marks.audit(SHOP)) == 1) == moved


def test_a_mark_is_rewound_to_any_version_and_keeps_its_snapshot(control):
    for version, value in enumerate("abc"):
        move(control, version, value)
    rewound = control.marks.rewind(SHOP, to_version=1, actor="bob@ship", reason="bad load")

    assert (rewound.version, rewound.value, rewound.snapshot, rewound.run_id) == (4, "a", 7, None)
    assert control.marks.get(SHOP) == rewound
    newest = control.marks.audit(SHOP)[0]
    assert (newest.kind, newest.restored_version, newest.snapshot) == ("rewind", 1, 7)


def test_a_rewind_may_bring_value_and_snapshot_of_its_own(control):
    move(control, None, "b")
    rewound = control.marks.rewind(SHOP, to_value="a", snapshot=5, actor="bob@ship", reason="bad load")
    assert (rewound.value, rewound.snapshot) == ("a", 5)
    assert control.marks.get(SHOP) == rewound


def test_a_move_by_hand_is_refused_once_the_mark_has_moved(control):
    move(control, None, "a")
    move(control, 1, "b")
    for by_hand in (
        lambda: control.marks.rewind(SHOP, to_version=1, expected_version=1, actor="bob@ship", reason="bad load"),
        lambda: control.marks.reset(SHOP, expected_version=1, actor="bob@ship", reason="bad load"),
    ):
        with pytest.raises(MarkMoved, match="was at version 1"):
            by_hand()
    assert (control.marks.get(SHOP).value, control.marks.version(SHOP)) == ("b", 2)


def test_a_mark_that_was_reset_is_none_and_counts_on(control):
    move(control, None, "a")
    assert control.marks.reset(SHOP, actor="bob@ship", reason="dropped") == 2
    assert control.marks.get(SHOP) is None
    assert control.marks.list() == []
    assert control.marks.version(SHOP) == 2
    with pytest.raises(MarkMoved):
        move(control, 1, "b")
    assert move(control, None, "b").version == 3
    assert control.marks.value_of(SHOP, 1) == "a"


def test_a_value_is_in_no_text_about_its_mark(control):
    assert "canary" not in repr(move(control, None, "canary"))
    assert "canary" not in repr(control.marks.audit(SHOP))


def test_a_reset_by_a_run_that_another_has_closed_takes_nothing_away(control):
    control.runs.begin(SHOP, "r1")
    control.runs.finish("r1", "abandoned")
    control.runs.begin(SHOP, "r2")
    moved = move(control, None, "a", run_id="r2")
    with pytest.raises(LeaseLost, match="r1 was closed by another"):
        control.marks.reset(SHOP, expected_version=1, run_id="r1", actor="ann@ship", reason="reset")
    assert control.marks.get(SHOP) == moved
