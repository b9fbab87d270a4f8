"""On PostgreSQL these run as an ordinary role: a superuser sees past row-level security, and so would the tests."""

import logging
import multiprocessing
import traceback
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tests.services.postgres import PostgresServer
from tidemark.control import ControlDatabase, Keyring, StateRegistry, StreamState
from tidemark.control.address import control_url as parsed_url
from tidemark.control.schema import metadata, stream_audit
from tidemark.errors import ControlError, StateKeyMissing, StateMoved, StateSealBroken, UsageError
from tidemark.faults import InjectedFault

SAP, ACCOUNTS = "sap_s4hana_odata", "sap.s4hana.gl_accounts"
CANARY = "2025-09-30T23:59:59Z#canary-of-state"
OLD, NEW = bytes(range(32)), bytes(range(100, 132))
TABLES = ("tidemark_stream_state", "tidemark_stream_value", "tidemark_stream_audit")
ROUNDS = 25

sqlite_only = pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.fast)])
postgresql_only = pytest.mark.parametrize("kind", [pytest.param("postgresql", marks=pytest.mark.service)])


@pytest.fixture(scope="session")
def ordinary_url(control_postgres: PostgresServer) -> str:
    """A database whose owner is no superuser."""
    control_postgres.execute(
        control_postgres.url(), "CREATE ROLE tess LOGIN PASSWORD 'right'", "CREATE DATABASE streams OWNER tess"
    )
    return control_postgres.url("streams", user="tess", password="right")


@pytest.fixture
def control_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/control.db"
    url: str = request.getfixturevalue("ordinary_url")
    request.getfixturevalue("control_postgres").execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return url


def keyring(**keys: bytes) -> Keyring:
    return Keyring(keys or {"old": OLD})


@pytest.fixture
def registry(control: ControlDatabase) -> StateRegistry:
    return control.streams("t1", keyring())


def commit(
    registry: StateRegistry, expected: int | None, cursor: str, stream: str = ACCOUNTS, connector: str = SAP
) -> StreamState:
    return registry.commit(
        connector,
        stream,
        expected_version=expected,
        cursor_field="LastUpdated",
        last_cursor=cursor,
        run_id="r1",
        actor="ann@ship",
        reason="run",
    )


def rewind(registry: StateRegistry, **to: object) -> StreamState:
    return registry.rewind(SAP, ACCOUNTS, **to, actor="bob@ship", reason="bad load")  # type: ignore[arg-type]


def reset(registry: StateRegistry) -> int:
    return registry.reset(SAP, ACCOUNTS, actor="bob@ship", reason="table was dropped")


def moves(registry: StateRegistry) -> list[tuple[str, int | None, int]]:
    return [(move.kind, move.from_version, move.to_version) for move in registry.history(SAP, ACCOUNTS)]


def execute(control_url: str, *statements: str, tenant: str | None = None) -> list[tuple]:
    """What the last statement finds, run past the registry."""
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


def test_a_stream_without_a_state_has_none(registry):
    assert registry.get(SAP, ACCOUNTS) is None
    assert registry.list() == []
    assert registry.history(SAP, ACCOUNTS) == []


def test_a_state_is_read_back_as_it_was_committed(registry, clock):
    committed = commit(registry, None, CANARY)

    assert committed == StreamState("t1", SAP, ACCOUNTS, CANARY, "LastUpdated", 1, clock.now(), "r1")
    assert registry.get(SAP, ACCOUNTS) == committed


def test_every_commit_counts_the_version_up(registry):
    commit(registry, None, "a")
    assert commit(registry, 1, "b").version == 2
    assert registry.get(SAP, ACCOUNTS).last_cursor == "b"


@pytest.mark.parametrize("expected", [None, 0, 1, 3])
def test_a_commit_from_another_version_is_refused_and_changes_nothing(registry, expected):
    commit(registry, None, "a")
    before = commit(registry, 1, "b")

    with pytest.raises(StateMoved, match=ACCOUNTS) as refused:
        commit(registry, expected, CANARY)

    assert CANARY not in str(refused.value)
    assert registry.get(SAP, ACCOUNTS) == before
    assert moves(registry) == [("commit", 1, 2), ("commit", None, 1)]


def test_a_commit_on_a_state_that_does_not_exist_is_refused(registry):
    with pytest.raises(StateMoved):
        commit(registry, 1, "a")
    assert registry.get(SAP, ACCOUNTS) is None


def test_a_commit_whose_audit_row_cannot_be_written_did_not_happen(registry):
    before = commit(registry, None, "a")
    with pytest.raises(ControlError) as failed:
        registry.commit(
            SAP,
            ACCOUNTS,
            expected_version=1,
            cursor_field="LastUpdated",
            last_cursor=CANARY,
            run_id="r2",
            actor="ann@ship",
            reason=None,  # type: ignore[arg-type]
        )
    assert CANARY not in "".join(traceback.format_exception(failed.value))
    assert registry.get(SAP, ACCOUNTS) == before
    assert commit(registry, 1, "b").version == 2  # the value of the failed one is not in the way


@pytest.mark.parametrize("point", ["commit", "rewind", "reset"])
@pytest.mark.parametrize(("when", "moved"), [("before", False), ("after", True)])
def test_a_run_that_dies_around_a_move_has_moved_the_state_wholly_or_not_at_all(registry, monkeypatch, point, when, moved):
    commit(registry, None, "a")
    move = {"commit": lambda: commit(registry, 1, "b"), "rewind": lambda: rewind(registry, to_version=1)}
    monkeypatch.setenv("TIDEMARK_FAULT", f"control.{when}_stream_{point}:raise")
    with pytest.raises(InjectedFault):
        move.get(point, lambda: reset(registry))()
    monkeypatch.delenv("TIDEMARK_FAULT")
    assert len(moves(registry)) == 1 + moved
    state = registry.get(SAP, ACCOUNTS)
    assert (state is None) == (moved and point == "reset")
    assert state is None or state.version == 1 + moved


def race(control: ControlDatabase, name: str, line: Barrier, results: multiprocessing.Queue) -> None:
    registry = control.streams("t1", keyring())
    won = []
    for _ in range(ROUNDS):
        state = registry.get(SAP, ACCOUNTS)
        line.wait(60)  # both have read the same version
        try:
            commit(registry, state and state.version, name)
            won.append(True)
        except StateMoved:
            won.append(False)
        line.wait(60)
    results.put((name, won))


def test_of_two_processes_that_commit_at_once_one_wins_every_time(control, registry):
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
    assert [move.to_version for move in registry.history(SAP, ACCOUNTS)] == list(range(ROUNDS, 0, -1))
    assert registry.get(SAP, ACCOUNTS).last_cursor == ("one" if won["one"][-1] else "two")


@postgresql_only
def test_a_commit_that_waited_for_another_finds_that_the_state_has_moved(control_postgres, control_url, registry):
    commit(registry, None, "a")
    with psycopg.connect(control_url) as other:  # holds the row, as a commit does until its transaction ends
        other.execute("SELECT set_config('tidemark.tenant', 't1', true)")
        other.execute("UPDATE tidemark_stream_state SET version = 2")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(commit, registry, 1, "b")
            while waiting_for_locks(control_postgres) == 0:
                assert not waiting.done()
            other.commit()
            with pytest.raises(StateMoved):
                waiting.result(60)
    assert moves(registry) == [("commit", None, 1)]


def waiting_for_locks(server: PostgresServer) -> int:
    with psycopg.connect(server.url()) as connection:
        return connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0]


# --- history, rewind, reset --------------------------------------------------------------------------------------------


def test_the_history_tells_every_move_newest_first_and_no_value(registry, clock):
    commit(registry, None, CANARY)
    clock.advance(timedelta(hours=1))
    commit(registry, 1, "b")
    clock.advance(timedelta(hours=1))
    rewind(registry, to_version=1)
    reset(registry)

    assert moves(registry) == [("reset", 3, 4), ("rewind", 2, 3), ("commit", 1, 2), ("commit", None, 1)]
    _, rewound, _, first = registry.history(SAP, ACCOUNTS)
    assert (rewound.actor, rewound.reason, rewound.run_id, rewound.restored_version) == ("bob@ship", "bad load", None, 1)
    assert rewound.at == clock.now()
    assert (first.actor, first.reason, first.run_id, first.restored_version) == ("ann@ship", "run", "r1", None)
    assert (first.tenant_id, first.connector_id, first.stream_id) == ("t1", SAP, ACCOUNTS)
    assert CANARY not in repr(registry.history(SAP, ACCOUNTS))


def test_a_rewind_makes_a_new_version_with_the_older_value(registry, clock):
    commit(registry, None, "a")
    commit(registry, 1, "b")
    rewound = rewind(registry, to_version=1)

    assert rewound == StreamState("t1", SAP, ACCOUNTS, "a", "LastUpdated", 3, clock.now(), None)
    assert registry.get(SAP, ACCOUNTS) == rewound
    with pytest.raises(StateMoved):
        commit(registry, 2, "c")  # by a run that began before the rewind


def test_a_rewind_may_name_the_value_itself(registry):
    commit(registry, None, "b")
    assert rewind(registry, to_value="a").last_cursor == "a"
    assert registry.get(SAP, ACCOUNTS).cursor_field == "LastUpdated"
    assert registry.history(SAP, ACCOUNTS)[0].restored_version is None


def test_a_rewind_touches_no_other_stream(registry, control):
    neighbour = control.streams("t2", keyring())
    others = [(registry, SAP, "sap.s4hana.orders"), (registry, "sf", ACCOUNTS), (neighbour, SAP, ACCOUNTS)]
    commit(registry, None, "a")
    commit(registry, 1, "b")
    for of, connector, stream in others:
        commit(of, None, "x", stream, connector)
    before = [commit(of, 1, "y", stream, connector) for of, connector, stream in others]

    rewind(registry, to_version=1)
    reset(registry)

    assert [of.get(connector, stream) for of, connector, stream in others] == before
    assert [len(of.history(connector, stream)) for of, connector, stream in others] == [2, 2, 2]


@pytest.mark.parametrize("to", [{}, {"to_version": 1, "to_value": "a"}])
def test_a_rewind_goes_to_a_version_or_to_a_value(registry, to):
    commit(registry, None, "a")
    with pytest.raises(UsageError, match="either to a version or to a value"):
        rewind(registry, **to)
    assert len(moves(registry)) == 1


@pytest.mark.parametrize("version", [0, 3, 4, -1])
def test_a_rewind_to_a_version_without_a_value_is_refused(registry, version):
    commit(registry, None, "a")
    commit(registry, 1, "b")
    reset(registry)  # version 3
    with pytest.raises(UsageError, match=f"no value of version {version}"):
        rewind(registry, to_version=version)
    assert len(moves(registry)) == 3


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_person_says_why(registry, reason):
    before = commit(registry, None, "a")
    with pytest.raises(UsageError, match="say why"):
        registry.rewind(SAP, ACCOUNTS, to_version=1, actor="bob@ship", reason=reason)
    with pytest.raises(UsageError, match="say why"):
        registry.reset(SAP, ACCOUNTS, actor="bob@ship", reason=reason)
    assert registry.get(SAP, ACCOUNTS) == before


def test_a_stream_that_was_reset_has_no_state_and_counts_on(registry):
    commit(registry, None, "a")
    assert reset(registry) == 2
    assert registry.get(SAP, ACCOUNTS) is None
    assert registry.list() == []

    with pytest.raises(StateMoved):
        commit(registry, 1, "b")  # by a run that began before the reset
    assert commit(registry, None, "b").version == 3
    assert moves(registry) == [("commit", 2, 3), ("reset", 1, 2), ("commit", None, 1)]


def test_a_run_may_ask_for_the_very_reset_it_began_after(registry):
    commit(registry, None, "a")
    assert commit(registry, reset(registry), "b").version == 3


def test_a_reset_can_be_taken_back(registry):
    commit(registry, None, "a")
    reset(registry)
    assert rewind(registry, to_version=1).version == 3
    assert registry.get(SAP, ACCOUNTS).last_cursor == "a"


def test_what_has_no_state_cannot_be_rewound_or_reset(registry):
    with pytest.raises(UsageError, match="nothing to rewind"):
        rewind(registry, to_value="a")
    with pytest.raises(UsageError, match="nothing to reset"):
        reset(registry)
    commit(registry, None, "a")
    reset(registry)
    with pytest.raises(UsageError, match="nothing to reset"):
        reset(registry)


# --- the audit is append-only ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tidemark_stream_audit SET reason = 'other'",
        "DELETE FROM tidemark_stream_audit",
        "DELETE FROM tidemark_stream_audit WHERE to_version = 1",
    ],
)
def test_audit_rows_cannot_be_changed_or_deleted(registry, control_url, statement):
    commit(registry, None, "a")
    before = registry.history(SAP, ACCOUNTS)
    assert_refused(control_url, statement)
    assert registry.history(SAP, ACCOUNTS) == before


def test_audit_rows_cannot_be_replaced_or_truncated(registry, control_url):
    commit(registry, None, "a")
    before = registry.history(SAP, ACCOUNTS)
    if control_url.startswith("sqlite"):
        copied = "INSERT OR REPLACE INTO tidemark_stream_audit SELECT {} FROM tidemark_stream_audit"
        columns = [column.name for column in stream_audit.columns]
        assert_refused(control_url, copied.format(", ".join("'x'" if c == "reason" else c for c in columns)))
        assert_refused(control_url, copied.format(", ".join("id + 1" if c == "id" else c for c in columns)))
        later = ", ".join("to_version + 1" if c == "to_version" else c for c in columns)  # the same id, another version
        assert_refused(control_url, copied.format(later))
    else:
        assert_refused(control_url, "TRUNCATE tidemark_stream_audit")
    assert registry.history(SAP, ACCOUNTS) == before


def assert_refused(control_url: str, statement: str) -> None:
    with pytest.raises(DBAPIError, match="the audit of streams is append-only"):
        execute(control_url, statement, tenant="t1")


def test_the_audit_knows_three_kinds_of_moves_only(registry, control_url):
    commit(registry, None, "a")
    columns = ", ".join(column.name for column in stream_audit.columns if column.name != "id")
    copied = columns.replace("kind", "'guess'").replace("to_version", "to_version + 1")
    with pytest.raises(DBAPIError, match="tidemark_stream_audit_kind"):
        execute(
            control_url,
            f"INSERT INTO tidemark_stream_audit ({columns}) SELECT {copied} FROM tidemark_stream_audit",
            tenant="t1",
        )


# --- values are sealed -------------------------------------------------------------------------------------------------


def traces(secret: str) -> list[bytes]:
    return [secret.encode(), b64encode(secret.encode()), secret.encode().hex().encode(), secret.encode("utf-16-le")]


@sqlite_only
def test_no_file_of_the_database_holds_a_value_or_a_key(registry, control, tmp_path):
    commit(registry, None, CANARY)
    rewind(registry, to_value=CANARY + "-again")
    content = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))  # with the write-ahead log
    control.close()
    content += (tmp_path / "control.db").read_bytes()
    assert content.count(b"gl_accounts") > 4  # the search finds what is there
    for trace in [*traces(CANARY), *traces("canary-of-state"), OLD, b64encode(OLD)]:
        assert trace not in content


def test_no_table_holds_a_value(registry, control_url):
    commit(registry, None, CANARY)
    rewind(registry, to_value=CANARY)
    rows = [row for table in TABLES for row in execute(control_url, f"SELECT * FROM {table}", tenant="t1")]
    assert len(rows) == 5
    assert "canary" not in repr(rows)


def test_nothing_that_is_printed_or_logged_holds_a_value_or_a_key(registry, control, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy").setLevel(logging.DEBUG)
    try:
        state = commit(registry, None, CANARY)
        told = [
            repr(state),
            str(state),
            f"{state}",
            repr(registry.list()),
            repr(registry),
            repr(registry.history(SAP, ACCOUNTS)),
        ]
        for attempt in (
            lambda: commit(registry, 7, CANARY),
            lambda: control.streams("t1", keyring(old=NEW)).get(SAP, ACCOUNTS),
        ):
            with pytest.raises((StateMoved, StateSealBroken)) as failed:
                attempt()
            told += traceback.format_exception(failed.value)
    finally:
        logging.getLogger("sqlalchemy").setLevel(logging.NOTSET)
    everything = "\n".join([*told, caplog.text])
    assert "LastUpdated" in everything
    assert not any(secret in everything for secret in ("canary", b64encode(OLD).decode(), b64encode(NEW).decode()))


def test_a_wrong_key_opens_nothing(registry, control):
    commit(registry, None, "a")
    wrong = control.streams("t1", keyring(old=NEW))
    for attempt in (lambda: wrong.get(SAP, ACCOUNTS), wrong.list, lambda: rewind(wrong, to_version=1)):
        with pytest.raises(StateSealBroken, match=ACCOUNTS):
            attempt()
    assert len(moves(registry)) == 1


def test_a_missing_key_is_named(registry, control):
    commit(registry, None, "a")
    with pytest.raises(StateKeyMissing, match="'old'"):
        control.streams("t1", keyring(new=NEW)).get(SAP, ACCOUNTS)


def test_an_altered_value_does_not_open(registry, control_url):
    commit(registry, None, "a")
    execute(
        control_url,
        "UPDATE tidemark_stream_value SET sealed = substr(sealed, 1, 12) || 'AAAA' || substr(sealed, 17)",
        tenant="t1",
    )
    with pytest.raises(StateSealBroken, match=f"{ACCOUNTS} version 1"):
        registry.get(SAP, ACCOUNTS)


def test_a_lost_value_is_not_taken_for_a_reset(registry, control_url):
    commit(registry, None, "a")
    execute(control_url, "DELETE FROM tidemark_stream_value", tenant="t1")
    with pytest.raises(StateSealBroken, match="missing"):
        registry.get(SAP, ACCOUNTS)
    with pytest.raises(StateSealBroken, match="missing"):
        registry.list()
    assert reset(registry) == 2  # the way out that the message names


def test_a_value_copied_from_another_stream_or_version_does_not_open(registry, control_url):
    commit(registry, None, "a")
    commit(registry, None, "z", stream="other")
    commit(registry, 1, "b")
    versions = "UPDATE tidemark_stream_value SET sealed = (SELECT v.sealed FROM tidemark_stream_value v WHERE {}) WHERE {}"
    execute(control_url, versions.format("v.stream_id = 'other'", f"stream_id = '{ACCOUNTS}' AND version = 2"), tenant="t1")
    with pytest.raises(StateSealBroken):
        registry.get(SAP, ACCOUNTS)
    first = f"v.stream_id = '{ACCOUNTS}' AND v.version = 1"
    execute(control_url, versions.format(first, f"stream_id = '{ACCOUNTS}' AND version = 2"), tenant="t1")
    with pytest.raises(StateSealBroken):
        registry.get(SAP, ACCOUNTS)
    assert rewind(registry, to_version=1).last_cursor == "a"  # the way out that the message names


def test_a_value_copied_from_another_tenant_does_not_open(registry, control, control_url):
    commit(registry, None, "a")
    commit(control.streams("t2", keyring()), None, "theirs")
    [(theirs,)] = execute(control_url, "SELECT sealed FROM tidemark_stream_value WHERE tenant_id = 't2'", tenant="t2")
    execute(control_url, f"UPDATE tidemark_stream_value SET sealed = '{theirs}' WHERE tenant_id = 't1'", tenant="t1")
    with pytest.raises(StateSealBroken):
        registry.get(SAP, ACCOUNTS)


# --- rotation ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def rotated(control: ControlDatabase) -> StateRegistry:
    return control.streams("t1", keyring(new=NEW, old=OLD))


def test_every_value_is_sealed_anew_and_the_old_key_can_go(registry, rotated, control):
    commit(registry, None, "a")
    commit(registry, 1, "b")
    commit(registry, None, "z", stream="other")
    before = registry.history(SAP, ACCOUNTS)

    assert rotated.reseal() == 3
    assert rotated.reseal() == 0

    newest_only = control.streams("t1", keyring(new=NEW))
    assert {state.last_cursor for state in newest_only.list()} == {"b", "z"}
    assert newest_only.get(SAP, ACCOUNTS).version == 2  # no move: nothing is committed by it
    assert newest_only.history(SAP, ACCOUNTS) == before
    assert rewind(newest_only, to_version=1).last_cursor == "a"


def test_what_is_committed_meanwhile_is_sealed_with_the_newest_key(rotated, control):
    commit(rotated, None, "a")
    assert control.streams("t1", keyring(new=NEW)).get(SAP, ACCOUNTS).last_cursor == "a"
    assert rotated.reseal() == 0


def test_a_key_whose_id_differs_in_case_only_is_another_key(registry, control):
    commit(registry, None, "a")
    assert control.streams("t1", keyring(OLD=NEW, old=OLD)).reseal() == 1
    assert control.streams("t1", keyring(OLD=NEW)).get(SAP, ACCOUNTS).last_cursor == "a"


def test_a_rotation_that_was_stopped_goes_on_from_there(registry, rotated, control, monkeypatch):
    monkeypatch.setattr("tidemark.control.resealing.BATCH", 2)
    for version in range(5):
        commit(registry, version or None, f"v{version + 1}")
    monkeypatch.setenv("TIDEMARK_FAULT", "control.after_stream_reseal:raise")
    with pytest.raises(InjectedFault):
        rotated.reseal()
    monkeypatch.delenv("TIDEMARK_FAULT")

    assert rotated.get(SAP, ACCOUNTS).last_cursor == "v5"  # readable half-way
    assert rotated.reseal() == 3
    newest_only = control.streams("t1", keyring(new=NEW))
    assert [rewind(newest_only, to_version=version).last_cursor for version in range(1, 6)] == ["v1", "v2", "v3", "v4", "v5"]


def test_a_value_that_does_not_open_does_not_keep_the_others_at_the_old_key(
    registry, rotated, control, control_url, monkeypatch
):
    monkeypatch.setattr("tidemark.control.resealing.BATCH", 2)
    for version in range(5):
        commit(registry, version or None, f"v{version + 1}")
    execute(control_url, "UPDATE tidemark_stream_value SET sealed = 'v1:old:AAAA' WHERE version <= 2", tenant="t1")

    with pytest.raises(
        StateSealBroken, match=f"3 values were sealed anew and 2 were left; the first: t1/{SAP}/{ACCOUNTS} version 1"
    ):
        rotated.reseal()
    assert control.streams("t1", keyring(new=NEW)).get(SAP, ACCOUNTS).last_cursor == "v5"


def test_a_rotation_seals_the_values_of_its_tenant_only(registry, rotated, control):
    commit(control.streams("t2", keyring()), None, "theirs")
    assert rotated.reseal() == 0
    assert control.streams("t2", keyring()).get(SAP, ACCOUNTS).last_cursor == "theirs"


# --- tenants -----------------------------------------------------------------------------------------------------------


def test_a_tenant_sees_nothing_of_another(registry, control):
    commit(registry, None, "a")
    other = control.streams("t2", keyring())

    assert other.get(SAP, ACCOUNTS) is None
    assert other.list() == []
    assert other.history(SAP, ACCOUNTS) == []
    with pytest.raises(UsageError, match="no state"):
        rewind(other, to_version=1)
    with pytest.raises(UsageError, match="no state"):
        reset(other)
    assert commit(other, None, "b").version == 1
    assert registry.get(SAP, ACCOUNTS).last_cursor == "a"


def test_the_states_are_listed_by_connector_and_stream(registry):
    for connector, stream in [("sf", "b"), ("sf", "a"), ("jdbc", "c")]:
        commit(registry, None, f"{connector}.{stream}", stream, connector)
    assert [state.last_cursor for state in registry.list()] == ["jdbc.c", "sf.a", "sf.b"]
    assert [state.last_cursor for state in registry.list("sf")] == ["sf.a", "sf.b"]
    assert registry.list("s") == []


@pytest.mark.parametrize("bad", ["", "../t2", "t1/t2", "t1\n", "t 1", "'; --", ".t", "x" * 129])
def test_ids_are_checked_before_they_are_used(registry, control, bad):
    with pytest.raises(UsageError, match="tenant"):
        control.streams(bad, keyring())
    for use in (registry.get, registry.history):
        with pytest.raises(UsageError, match="connector"):
            use(bad, ACCOUNTS)
        with pytest.raises(UsageError, match="stream"):
            use(SAP, bad)
    with pytest.raises(UsageError, match="connector"):
        registry.list(bad)
    with pytest.raises(UsageError, match="stream"):
        commit(registry, None, "a", stream=bad)


# Row-level security: the database itself keeps tenants apart, whatever the query.


@pytest.fixture
def two_tenants(registry: StateRegistry, control: ControlDatabase) -> None:
    commit(registry, None, "a")
    commit(control.streams("t2", keyring()), None, "b")


@postgresql_only
@pytest.mark.parametrize("table", TABLES)
def test_a_query_without_where_sees_the_tenant_that_is_set_and_none_if_none_is(two_tenants, control_url, table):
    query = f"SELECT tenant_id FROM {table}"
    assert execute(control_url, query, tenant="t1") == [("t1",)]
    assert execute(control_url, query, tenant="t2") == [("t2",)]
    assert execute(control_url, query, tenant="") == []
    assert execute(control_url, query) == []


@postgresql_only
def test_a_connection_that_served_a_tenant_shows_nothing_of_it_to_the_next(two_tenants, control):
    with control._transactions.read() as connection:  # out of the pool that the registry used
        assert connection.execute(sa.text("SELECT count(*) FROM tidemark_stream_value")).scalar() == 0


@postgresql_only
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("other", ["t2", ""])
def test_a_row_of_another_tenant_cannot_be_written(registry, control_url, table, other):
    commit(registry, None, "a")
    columns = [column.name for column in metadata.tables[table].columns if column.name != "id"]
    copied = ", ".join(f"'{other}'" if column == "tenant_id" else column for column in columns)
    statement = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {copied} FROM {table}"
    with pytest.raises(DBAPIError, match="row-level security"):
        execute(control_url, statement, tenant="t1")


@postgresql_only
@pytest.mark.parametrize("table", TABLES[:2])
def test_a_row_cannot_be_given_to_another_tenant_nor_taken_from_one(two_tenants, control_url, table):
    with pytest.raises(DBAPIError, match="row-level security"):
        execute(control_url, f"UPDATE {table} SET tenant_id = 't3'", tenant="t1")
    execute(control_url, f"DELETE FROM {table}", tenant="t1")
    assert execute(control_url, f"SELECT tenant_id FROM {table}", tenant="t2") == [("t2",)]


@postgresql_only
def test_nobody_is_a_tenant_of_no_name(registry, control_url):
    commit(registry, None, "a")
    statement = "INSERT INTO tidemark_stream_value VALUES ('', 'c', 's', 1, 'f', 'x')"
    with pytest.raises(DBAPIError, match="row-level security"):
        execute(control_url, statement, tenant="")
