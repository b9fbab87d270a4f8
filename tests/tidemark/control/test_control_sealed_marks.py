"""On PostgreSQL these run as an ordinary role: a superuser sees past row-level security, and so would the tests."""

import logging
import multiprocessing
import traceback
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.synchronize import Barrier

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tests.services.postgres import PostgresServer
from tidemark.control import ControlDatabase, Keyring, Mark, Marks
from tidemark.control.schema import mark_audit, metadata
from tidemark.control.url import control_url as parsed_url
from tidemark.errors import (
    ControlError,
    MarkMoved,
    RowSecurityOff,
    StateKeyMissing,
    StateSealBroken,
    UsageError,
)
from tidemark.faults import InjectedFault

SAP, ACCOUNTS = "sap_s4hana_odata", "sap.s4hana.gl_accounts"
GL = f"stream/t1/{SAP}/{ACCOUNTS}"
THEIRS = f"stream/t2/{SAP}/{ACCOUNTS}"
CANARY = "2025-09-30T23:59:59Z#canary-of-state"
OLD, NEW = bytes(range(32)), bytes(range(100, 132))
TABLES = ("tidemark_marks", "tidemark_mark_values", "tidemark_mark_audit")
ROUNDS = 25

sqlite_only = pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.fast)])
postgresql_only = pytest.mark.parametrize("kind", [pytest.param("postgresql", marks=pytest.mark.service)])


@pytest.fixture
def control_url(ordinary_control_url: str) -> str:
    return ordinary_control_url


def keyring(**keys: bytes) -> Keyring:
    return Keyring(keys or {"old": OLD})


@pytest.fixture
def marks(control: ControlDatabase) -> Marks:
    return control.sealed_marks("t1", keyring())


@pytest.fixture
def neighbour(control: ControlDatabase) -> Marks:
    return control.sealed_marks("t2", keyring())


def move(marks: Marks, expected: int | None, cursor: str, subject: str = GL) -> Mark:
    return marks.move(subject, expected, cursor, field="LastUpdated", run_id="r1", actor="ann@ship", reason="run")


def rewind(marks: Marks, subject: str = GL, **to: object) -> Mark:
    return marks.rewind(subject, **to, actor="bob@ship", reason="bad load")  # type: ignore[arg-type]


def reset(marks: Marks, subject: str = GL) -> int:
    return marks.reset(subject, actor="bob@ship", reason="table was dropped")


def moves(marks: Marks) -> list[tuple[str, int | None, int]]:
    return [(row.kind, row.from_version, row.to_version) for row in marks.audit(GL)]


def execute(control_url: str, *statements: str, tenant: str | None = None) -> list[tuple]:
    """What the last statement finds, run past the marks."""
    engine = sa.create_engine(parsed_url(control_url))
    try:
        with engine.begin() as connection:
            if tenant is not None and connection.dialect.name == "postgresql":
                connection.execute(sa.text("SELECT set_config('tidemark.tenant', :tenant, true)"), {"tenant": tenant})
            for statement in statements:
                result = connection.execute(sa.text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


# --- commit ------------------------------------------------------------------------------------------------------------


def test_a_stream_without_a_state_has_none(marks):
    assert marks.get(GL) is None
    assert marks.list() == []
    assert marks.audit(GL) == []


def test_a_state_is_read_back_as_it_was_committed(marks, clock):
    committed = move(marks, None, CANARY)

    assert committed == Mark(GL, 1, CANARY, "LastUpdated", None, "r1", clock.now())
    assert marks.get(GL) == committed


def test_every_commit_counts_the_version_up(marks):
    move(marks, None, "a")
    assert move(marks, 1, "b").version == 2
    assert marks.get(GL).value == "b"


@pytest.mark.parametrize("expected", [None, 0, 1, 3])
def test_a_commit_from_another_version_is_refused_and_changes_nothing(marks, expected):
    move(marks, None, "a")
    before = move(marks, 1, "b")

    with pytest.raises(MarkMoved, match=ACCOUNTS) as refused:
        move(marks, expected, CANARY)

    assert CANARY not in str(refused.value)
    assert marks.get(GL) == before
    assert moves(marks) == [("commit", 1, 2), ("commit", None, 1)]


def test_a_commit_on_a_state_that_does_not_exist_is_refused(marks):
    with pytest.raises(MarkMoved):
        move(marks, 1, "a")
    assert marks.get(GL) is None


def test_a_commit_whose_audit_row_cannot_be_written_did_not_happen(marks):
    before = move(marks, None, "a")
    with pytest.raises(ControlError) as failed:
        marks.move(GL, 1, CANARY, field="LastUpdated", run_id="r2", actor="ann@ship", reason=None)  # type: ignore[arg-type]
    assert CANARY not in "".join(traceback.format_exception(failed.value))
    assert marks.get(GL) == before
    assert move(marks, 1, "b").version == 2  # the value of the failed one is not in the way


@pytest.mark.parametrize("point", ["move", "rewind", "reset"])
@pytest.mark.parametrize(("when", "moved"), [("before", False), ("after", True)])
def test_a_run_that_dies_around_a_move_has_moved_the_state_wholly_or_not_at_all(marks, monkeypatch, point, when, moved):
    move(marks, None, "a")
    ways = {"move": lambda: move(marks, 1, "b"), "rewind": lambda: rewind(marks, to_version=1)}
    monkeypatch.setenv("TIDEMARK_FAULT", f"control.{when}_mark_{point}:raise")
    with pytest.raises(InjectedFault):
        ways.get(point, lambda: reset(marks))()
    monkeypatch.delenv("TIDEMARK_FAULT")
    assert len(moves(marks)) == 1 + moved
    state = marks.get(GL)
    assert (state is None) == (moved and point == "reset")
    assert state is None or state.version == 1 + moved


def race(control: ControlDatabase, name: str, line: Barrier, results: multiprocessing.Queue) -> None:
    marks = control.sealed_marks("t1", keyring())
    won = []
    for _ in range(ROUNDS):
        state = marks.get(GL)
        line.wait(60)  # both have read the same version
        try:
            move(marks, state and state.version, name)
            won.append(True)
        except MarkMoved:
            won.append(False)
        line.wait(60)
    results.put((name, won))


def test_of_two_processes_that_commit_at_once_one_wins_every_time(control, marks):
    control.migrate()
    spawn = multiprocessing.get_context("spawn")
    line, results = spawn.Barrier(2), spawn.Queue()
    racers = [spawn.Process(target=race, args=(control, name, line, results)) for name in ("one", "two")]
    for racer in racers:
        racer.start()
    won = dict(results.get(timeout=120) for _ in racers)
    for racer in racers:
        racer.join(60)

    assert [one + two for one, two in zip(won["one"], won["two"], strict=True)] == [1] * ROUNDS
    assert [move.to_version for move in marks.audit(GL)] == list(range(ROUNDS, 0, -1))
    assert marks.get(GL).value == ("one" if won["one"][-1] else "two")


@postgresql_only
def test_a_commit_that_waited_for_another_finds_that_the_state_has_moved(control_postgres, control_url, marks):
    move(marks, None, "a")
    with psycopg.connect(control_url) as other:  # holds the row, as a commit does until its transaction ends
        other.execute("SELECT set_config('tidemark.tenant', 't1', true)")
        other.execute("UPDATE tidemark_marks SET version = 2")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(move, marks, 1, "b")
            while waiting_for_locks(control_postgres) == 0:
                assert not waiting.done()
            other.commit()
            with pytest.raises(MarkMoved):
                waiting.result(60)
    assert moves(marks) == [("commit", None, 1)]


def waiting_for_locks(server: PostgresServer) -> int:
    with psycopg.connect(server.url()) as connection:
        return connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0]


# --- history, rewind, reset --------------------------------------------------------------------------------------------


def test_the_history_tells_every_move_newest_first_and_no_value(marks, clock):
    move(marks, None, CANARY)
    clock.advance(timedelta(hours=1))
    move(marks, 1, "b")
    clock.advance(timedelta(hours=1))
    rewind(marks, to_version=1)
    reset(marks)

    assert moves(marks) == [("reset", 3, 4), ("rewind", 2, 3), ("commit", 1, 2), ("commit", None, 1)]
    _, rewound, _, first = marks.audit(GL)
    assert (rewound.actor, rewound.reason, rewound.run_id, rewound.restored_version) == ("bob@ship", "bad load", None, 1)
    assert rewound.at == clock.now()
    assert (first.actor, first.reason, first.run_id, first.restored_version) == ("ann@ship", "run", "r1", None)
    assert (first.tenant, first.subject) == ("t1", GL)
    assert CANARY not in repr(marks.audit(GL))


def test_a_rewind_makes_a_new_version_with_the_older_value(marks, clock):
    move(marks, None, "a")
    move(marks, 1, "b")
    rewound = rewind(marks, to_version=1)

    assert rewound == Mark(GL, 3, "a", "LastUpdated", None, None, clock.now())
    assert marks.get(GL) == rewound
    with pytest.raises(MarkMoved):
        move(marks, 2, "c")  # by a run that began before the rewind


def test_a_rewind_may_name_the_value_itself(marks):
    move(marks, None, "b")
    assert rewind(marks, to_value="a").value == "a"
    assert marks.get(GL).field == "LastUpdated"
    assert marks.audit(GL)[0].restored_version is None


def test_a_rewind_touches_no_other_stream(marks, neighbour):
    others = [(marks, f"stream/t1/{SAP}/sap.s4hana.orders"), (marks, f"stream/t1/sf/{ACCOUNTS}"), (neighbour, THEIRS)]
    move(marks, None, "a")
    move(marks, 1, "b")
    for of, subject in others:
        move(of, None, "x", subject)
    before = [move(of, 1, "y", subject) for of, subject in others]

    rewind(marks, to_version=1)
    reset(marks)

    assert [of.get(subject) for of, subject in others] == before
    assert [len(of.audit(subject)) for of, subject in others] == [2, 2, 2]


@pytest.mark.parametrize("to", [{}, {"to_version": 1, "to_value": "a"}])
def test_a_rewind_goes_to_a_version_or_to_a_value(marks, to):
    move(marks, None, "a")
    with pytest.raises(UsageError, match="either to a version or to a value"):
        rewind(marks, **to)
    assert len(moves(marks)) == 1


@pytest.mark.parametrize("version", [0, 3, 4, -1])
def test_a_rewind_to_a_version_without_a_value_is_refused(marks, version):
    move(marks, None, "a")
    move(marks, 1, "b")
    reset(marks)  # version 3
    with pytest.raises(UsageError, match=f"no value of version {version}"):
        rewind(marks, to_version=version)
    assert len(moves(marks)) == 3


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_person_says_why(marks, reason):
    before = move(marks, None, "a")
    with pytest.raises(UsageError, match="say why"):
        marks.rewind(GL, to_version=1, actor="bob@ship", reason=reason)
    with pytest.raises(UsageError, match="say why"):
        marks.reset(GL, actor="bob@ship", reason=reason)
    assert marks.get(GL) == before


def test_a_stream_that_was_reset_has_no_state_and_counts_on(marks):
    move(marks, None, "a")
    assert reset(marks) == 2
    assert marks.get(GL) is None
    assert marks.list() == []

    with pytest.raises(MarkMoved):
        move(marks, 1, "b")  # by a run that began before the reset
    assert move(marks, None, "b").version == 3
    assert moves(marks) == [("commit", 2, 3), ("reset", 1, 2), ("commit", None, 1)]


def test_a_run_may_ask_for_the_very_reset_it_began_after(marks):
    move(marks, None, "a")
    assert move(marks, reset(marks), "b").version == 3


def test_a_reset_can_be_taken_back(marks):
    move(marks, None, "a")
    reset(marks)
    assert rewind(marks, to_version=1).version == 3
    assert marks.get(GL).value == "a"


def test_what_has_no_state_cannot_be_rewound_or_reset(marks):
    with pytest.raises(UsageError, match="nothing to rewind"):
        rewind(marks, to_value="a")
    with pytest.raises(UsageError, match="nothing to reset"):
        reset(marks)
    move(marks, None, "a")
    reset(marks)
    with pytest.raises(UsageError, match="nothing to reset"):
        reset(marks)


# --- the audit is append-only ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tidemark_mark_audit SET reason = 'other'",
        "DELETE FROM tidemark_mark_audit",
        "DELETE FROM tidemark_mark_audit WHERE to_version = 1",
    ],
)
def test_audit_rows_cannot_be_changed_or_deleted(marks, control_url, statement):
    move(marks, None, "a")
    before = marks.audit(GL)
    assert_refused(control_url, statement)
    assert marks.audit(GL) == before


def test_audit_rows_cannot_be_replaced_or_truncated(marks, control_url):
    move(marks, None, "a")
    before = marks.audit(GL)
    if control_url.startswith("sqlite"):
        copied = "INSERT OR REPLACE INTO tidemark_mark_audit SELECT {} FROM tidemark_mark_audit"
        columns = [column.name for column in mark_audit.columns]
        assert_refused(control_url, copied.format(", ".join("'x'" if c == "reason" else c for c in columns)))
        assert_refused(control_url, copied.format(", ".join("id + 1" if c == "id" else c for c in columns)))
        later = ", ".join("to_version + 1" if c == "to_version" else c for c in columns)  # the same id, another version
        assert_refused(control_url, copied.format(later))
    else:
        assert_refused(control_url, "TRUNCATE tidemark_mark_audit")
    assert marks.audit(GL) == before


def assert_refused(control_url: str, statement: str) -> None:
    with pytest.raises(DBAPIError, match="the audit of marks is append-only"):
        execute(control_url, statement, tenant="t1")


def test_the_audit_knows_three_kinds_of_moves_only(marks, control_url):
    move(marks, None, "a")
    columns = ", ".join(column.name for column in mark_audit.columns if column.name != "id")
    copied = columns.replace("kind", "'guess'").replace("to_version", "to_version + 1")
    with pytest.raises(DBAPIError, match="tidemark_mark_audit_kind"):
        execute(
            control_url,
            f"INSERT INTO tidemark_mark_audit ({columns}) SELECT {copied} FROM tidemark_mark_audit",
            tenant="t1",
        )


# --- values are sealed -------------------------------------------------------------------------------------------------


def traces(secret: str) -> list[bytes]:
    return [secret.encode(), b64encode(secret.encode()), secret.encode().hex().encode(), secret.encode("utf-16-le")]


@sqlite_only
def test_no_file_of_the_database_holds_a_value_or_a_key(marks, control, tmp_path):
    move(marks, None, CANARY)
    rewind(marks, to_value=CANARY + "-again")
    content = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))  # with the write-ahead log
    control.close()
    content += (tmp_path / "control.db").read_bytes()
    assert content.count(b"gl_accounts") > 4  # the search finds what is there
    for trace in [*traces(CANARY), *traces("canary-of-state"), OLD, b64encode(OLD)]:
        assert trace not in content


def test_no_table_holds_a_value(marks, control_url):
    move(marks, None, CANARY)
    rewind(marks, to_value=CANARY)
    rows = [row for table in TABLES for row in execute(control_url, f"SELECT * FROM {table}", tenant="t1")]
    assert len(rows) == 5
    assert "canary" not in repr(rows)


def test_nothing_that_is_printed_or_logged_holds_a_value_or_a_key(marks, control, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy").setLevel(logging.DEBUG)
    try:
        state = move(marks, None, CANARY)
        told = [
            repr(state),
            str(state),
            f"{state}",
            repr(marks.list()),
            repr(marks),
            repr(marks.audit(GL)),
        ]
        for attempt in (
            lambda: move(marks, 7, CANARY),
            lambda: control.sealed_marks("t1", keyring(old=NEW)).get(GL),
        ):
            with pytest.raises((MarkMoved, StateSealBroken)) as failed:
                attempt()
            told += traceback.format_exception(failed.value)
    finally:
        logging.getLogger("sqlalchemy").setLevel(logging.NOTSET)
    everything = "\n".join([*told, caplog.text])
    assert "LastUpdated" in everything
    assert not any(secret in everything for secret in ("canary", b64encode(OLD).decode(), b64encode(NEW).decode()))


def test_a_wrong_key_opens_nothing(marks, control):
    move(marks, None, "a")
    wrong = control.sealed_marks("t1", keyring(old=NEW))
    for attempt in (lambda: wrong.get(GL), wrong.list, lambda: rewind(wrong, to_version=1)):
        with pytest.raises(StateSealBroken, match=ACCOUNTS):
            attempt()
    assert len(moves(marks)) == 1


def test_a_missing_key_is_named(marks, control):
    move(marks, None, "a")
    with pytest.raises(StateKeyMissing, match="'old'"):
        control.sealed_marks("t1", keyring(new=NEW)).get(GL)


def test_an_altered_value_does_not_open(marks, control_url):
    move(marks, None, "a")
    execute(
        control_url,
        "UPDATE tidemark_mark_values SET value = substr(value, 1, 12) || 'AAAA' || substr(value, 17)",
        tenant="t1",
    )
    with pytest.raises(StateSealBroken, match=f"{ACCOUNTS} version 1"):
        marks.get(GL)


def test_a_lost_value_is_not_taken_for_a_reset(marks, control_url):
    move(marks, None, "a")
    execute(control_url, "DELETE FROM tidemark_mark_values", tenant="t1")
    with pytest.raises(StateSealBroken, match="missing"):
        marks.get(GL)
    with pytest.raises(StateSealBroken, match="missing"):
        marks.list()
    assert reset(marks) == 2  # the way out that the message names


def test_a_value_copied_from_another_stream_or_version_does_not_open(marks, control_url):
    move(marks, None, "a")
    move(marks, None, "z", subject="stream/t1/other/other")
    move(marks, 1, "b")
    versions = "UPDATE tidemark_mark_values SET value = (SELECT v.value FROM tidemark_mark_values v WHERE {}) WHERE {}"
    execute(control_url, versions.format("v.subject LIKE '%other'", f"subject = '{GL}' AND version = 2"), tenant="t1")
    with pytest.raises(StateSealBroken):
        marks.get(GL)
    first = f"v.subject = '{GL}' AND v.version = 1"
    execute(control_url, versions.format(first, f"subject = '{GL}' AND version = 2"), tenant="t1")
    with pytest.raises(StateSealBroken):
        marks.get(GL)
    assert rewind(marks, to_version=1).value == "a"  # the way out that the message names


def test_a_value_copied_from_another_tenant_does_not_open(marks, control, control_url):
    move(marks, None, "a")
    move(control.sealed_marks("t2", keyring()), None, "theirs", THEIRS)
    [(theirs,)] = execute(control_url, "SELECT value FROM tidemark_mark_values WHERE tenant = 't2'", tenant="t2")
    execute(control_url, f"UPDATE tidemark_mark_values SET value = '{theirs}' WHERE tenant = 't1'", tenant="t1")
    with pytest.raises(StateSealBroken):
        marks.get(GL)


# --- rotation ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def rotated(control: ControlDatabase) -> Marks:
    return control.sealed_marks("t1", keyring(new=NEW, old=OLD))


def test_every_value_is_sealed_anew_and_the_old_key_can_go(marks, rotated, control):
    move(marks, None, "a")
    move(marks, 1, "b")
    move(marks, None, "z", subject="stream/t1/other/other")
    before = marks.audit(GL)

    assert rotated.reseal() == 3
    assert rotated.reseal() == 0

    newest_only = control.sealed_marks("t1", keyring(new=NEW))
    assert {state.value for state in newest_only.list()} == {"b", "z"}
    assert newest_only.get(GL).version == 2  # no move: nothing is committed by it
    assert newest_only.audit(GL) == before
    assert rewind(newest_only, to_version=1).value == "a"


def test_what_is_committed_meanwhile_is_sealed_with_the_newest_key(rotated, control):
    move(rotated, None, "a")
    assert control.sealed_marks("t1", keyring(new=NEW)).get(GL).value == "a"
    assert rotated.reseal() == 0


def test_a_key_whose_id_differs_in_case_only_is_another_key(marks, control):
    move(marks, None, "a")
    assert control.sealed_marks("t1", keyring(OLD=NEW, old=OLD)).reseal() == 1
    assert control.sealed_marks("t1", keyring(OLD=NEW)).get(GL).value == "a"


def test_a_rotation_that_was_stopped_goes_on_from_there(marks, rotated, control, monkeypatch):
    monkeypatch.setattr("tidemark.control.resealing.BATCH", 2)
    for version in range(5):
        move(marks, version or None, f"v{version + 1}")
    monkeypatch.setenv("TIDEMARK_FAULT", "control.after_mark_reseal:raise")
    with pytest.raises(InjectedFault):
        rotated.reseal()
    monkeypatch.delenv("TIDEMARK_FAULT")

    assert rotated.get(GL).value == "v5"  # readable half-way
    assert rotated.reseal() == 3
    newest_only = control.sealed_marks("t1", keyring(new=NEW))
    assert [rewind(newest_only, to_version=version).value for version in range(1, 6)] == ["v1", "v2", "v3", "v4", "v5"]


def test_a_value_that_does_not_open_does_not_keep_the_others_at_the_old_key(
    marks, rotated, control, control_url, monkeypatch
):
    monkeypatch.setattr("tidemark.control.resealing.BATCH", 2)
    for version in range(5):
        move(marks, version or None, f"v{version + 1}")
    execute(control_url, "UPDATE tidemark_mark_values SET value = 'v1:old:AAAA' WHERE version <= 2", tenant="t1")

    with pytest.raises(StateSealBroken, match=f"3 values were re-sealed and 2 were left; the first: {GL} version 1"):
        rotated.reseal()
    assert control.sealed_marks("t1", keyring(new=NEW)).get(GL).value == "v5"


def test_a_rotation_seals_the_values_of_its_tenant_only(marks, rotated, control):
    move(control.sealed_marks("t2", keyring()), None, "theirs", THEIRS)
    assert rotated.reseal() == 0
    assert control.sealed_marks("t2", keyring()).get(THEIRS).value == "theirs"


# --- tenants -----------------------------------------------------------------------------------------------------------


def test_a_tenant_sees_nothing_of_another(marks, neighbour):
    move(marks, None, "a")

    assert neighbour.get(THEIRS) is None
    assert neighbour.list() == []
    assert neighbour.audit(THEIRS) == []
    with pytest.raises(UsageError, match="no mark"):
        rewind(neighbour, THEIRS, to_version=1)
    with pytest.raises(UsageError, match="no mark"):
        reset(neighbour, THEIRS)
    assert move(neighbour, None, "b", THEIRS).version == 1
    assert marks.get(GL).value == "a"


def every_use(marks: Marks, subject: str) -> list[Callable[[], object]]:
    return [
        lambda: marks.get(subject),
        lambda: marks.version(subject),
        lambda: marks.audit(subject),
        lambda: marks.value_of(subject, 1),
        lambda: move(marks, None, "a", subject),
        lambda: rewind(marks, subject, to_version=1),
        lambda: reset(marks, subject),
        lambda: marks.seal(subject, "a"),
        lambda: marks.open(subject, "a"),
    ]


@pytest.mark.parametrize("subject", [THEIRS, "catalog/shop", "model/silver.carts", "stream/t1x/a/b"])
def test_the_sealed_marks_of_a_tenant_take_its_streams_only(marks, subject):
    for use in every_use(marks, subject):
        with pytest.raises(UsageError, match="is no stream of tenant 't1'"):
            use()


def test_plain_marks_take_no_stream(control):
    for use in every_use(control.marks, GL):
        with pytest.raises(UsageError, match="belongs to a tenant"):
            use()
    assert control.sealed_marks("t1", keyring()).version(GL) == 0


def test_plain_marks_list_no_mark_of_a_tenant(control, marks):
    move(marks, None, "a")
    move(control.marks, None, "z", "catalog/shop")
    assert [mark.subject for mark in control.marks.list()] == ["catalog/shop"]
    assert [mark.subject for mark in marks.list()] == [GL]


def test_marks_are_listed_by_whole_parts_of_their_address(marks):
    for name in ("sf/b", "sf/a", "jdbc/c", "sfx/d"):
        move(marks, None, name, f"stream/t1/{name}")
    assert [mark.value for mark in marks.list()] == ["jdbc/c", "sf/a", "sf/b", "sfx/d"]
    for prefix in ("stream/t1/sf", "stream/t1/sf/"):
        assert [mark.value for mark in marks.list(prefix)] == ["sf/a", "sf/b"]
    assert [mark.value for mark in marks.list("stream/t1/sf/a")] == ["sf/a"]
    for nothing in ("stream/t1/s", "stream/t1/SF", "stream/t_/sf", "stream/t2"):
        assert marks.list(nothing) == []


@pytest.mark.parametrize("bad", ["", "../t2", "t1/t2", "t1\n", "t 1", "'; --", ".t", "x" * 129])
def test_ids_are_checked_before_they_are_used(marks, control, bad):
    with pytest.raises(UsageError, match="tenant"):
        control.sealed_marks(bad, keyring())
    for subject in (f"stream/t1/{bad}/{ACCOUNTS}", f"stream/t1/{SAP}/{bad}"):
        for use in every_use(marks, subject):
            with pytest.raises(UsageError):
                use()


# Row-level security: the database itself keeps tenants apart, whatever the query.


@pytest.fixture
def two_tenants(marks: Marks, neighbour: Marks, control: ControlDatabase) -> None:
    move(marks, None, "a")
    move(neighbour, None, "b", THEIRS)
    move(control.marks, None, "c", "catalog/shop")


@postgresql_only
@pytest.mark.parametrize("table", TABLES)
def test_a_query_without_where_sees_the_tenant_that_is_set_and_what_belongs_to_nobody(two_tenants, control_url, table):
    query = f"SELECT tenant FROM {table} ORDER BY tenant"
    assert execute(control_url, query, tenant="t1") == [("",), ("t1",)]
    assert execute(control_url, query, tenant="t2") == [("",), ("t2",)]
    assert execute(control_url, query, tenant="") == [("",)]
    assert execute(control_url, query) == [("",)]


@postgresql_only
def test_a_connection_that_served_a_tenant_shows_nothing_of_it_to_the_next(two_tenants, control):
    with control._transactions.reading() as connection:  # out of the pool that the marks used
        assert connection.execute(sa.text("SELECT subject FROM tidemark_mark_values")).scalars().all() == ["catalog/shop"]


@postgresql_only
@pytest.mark.parametrize("table", TABLES)
def test_a_row_of_another_tenant_cannot_be_written(marks, control_url, table):
    move(marks, None, "a")
    columns = [column.name for column in metadata.tables[table].columns if column.name != "id"]
    other = {"tenant": "'t2'", "subject": f"'{THEIRS}'"}
    copied = ", ".join(other.get(column, column) for column in columns)
    statement = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {copied} FROM {table}"
    with pytest.raises(DBAPIError, match="row-level security"):
        execute(control_url, statement, tenant="t1")


@postgresql_only
@pytest.mark.parametrize("table", TABLES[:2])
def test_a_row_cannot_be_given_to_another_tenant_nor_taken_from_one(two_tenants, control_url, table):
    with pytest.raises(DBAPIError, match="row-level security"):
        execute(control_url, f"UPDATE {table} SET tenant = 't2', subject = '{THEIRS}x' WHERE tenant = 't1'", tenant="t1")
    execute(control_url, f"DELETE FROM {table} WHERE tenant <> ''", tenant="t1")
    assert execute(control_url, f"SELECT tenant FROM {table} WHERE tenant <> ''", tenant="t2") == [("t2",)]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("tenant", "subject"),
    [("", GL), ("", "stream//a/b"), ("t1", THEIRS), ("t", GL), ("t1", "stream/t1"), ("t1", "catalog/shop")],
)
def test_a_row_belongs_to_the_tenant_in_its_address_or_to_nobody(marks, control_url, table, tenant, subject):
    """What belongs to nobody, everybody may read: a stream's row must never pass for such a one."""
    move(marks, None, "a")
    columns = [column.name for column in metadata.tables[table].columns if column.name != "id"]
    other = {"tenant": f"'{tenant}'", "subject": f"'{subject}'", "version": "9", "to_version": "9"}
    copied = ", ".join(other.get(column, column) for column in columns)
    statement = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {copied} FROM {table}"
    with pytest.raises(DBAPIError, match=f"{table}_tenant|row-level security"):
        execute(control_url, statement, tenant="t1")


def test_moments_of_all_tenants_are_had_without_a_key(control, marks, neighbour, clock):
    move(marks, None, CANARY)
    move(neighbour, None, CANARY, THEIRS)
    control.marks.move("catalog/shop", None, "2026-01-01T00:00:00Z", run_id="r1", actor="ann@ship", reason="run")
    clock.advance(timedelta(minutes=1))
    moved = clock.now()
    move(neighbour, 1, CANARY, THEIRS)

    found = control.marks.moments(["t1", "t2"])
    assert [(each.subject, each.version) for each in found] == [("catalog/shop", 1), (GL, 1), (THEIRS, 2)]
    assert found[2].moved_at == moved
    assert CANARY not in repr(found)
    assert [each.subject for each in control.marks.moments(["t1"])] == ["catalog/shop", GL]
    reset(marks)
    assert [each.subject for each in control.marks.moments(["t1"])] == ["catalog/shop"], "after a reset there is no mark"


@postgresql_only
def test_row_level_security_hides_the_moments_of_tenants_that_were_not_asked_for(control, marks, neighbour):
    move(marks, None, CANARY)
    move(neighbour, None, CANARY, THEIRS)
    with control._transactions.reading() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM tidemark_marks")).scalar() == 0


def test_a_rewind_by_a_run_names_that_run(control, marks):
    move(marks, None, "1")
    move(marks, 1, "2")
    marks.rewind(GL, to_version=1, run_id="back-1", actor="bob@ship", reason="rollback")
    assert (marks.audit(GL)[0].run_id, marks.get(GL).value) == ("back-1", "1")


def test_an_ordinary_role_is_kept_to_its_tenant(control):
    control.require_row_security()


@postgresql_only
@pytest.mark.parametrize("right", ["SUPERUSER", "BYPASSRLS"])
def test_a_role_that_sees_past_row_level_security_is_refused_by_name(control, control_postgres, right):
    control.migrate()
    control_postgres.execute(control_postgres.url(), f"ALTER ROLE tess {right}")
    try:
        with pytest.raises(RowSecurityOff, match="NOSUPERUSER NOBYPASSRLS") as refused:
            control.require_row_security()
        assert "right" not in str(refused.value), "no password is shown"
    finally:
        control_postgres.execute(control_postgres.url(), f"ALTER ROLE tess NO{right}")
