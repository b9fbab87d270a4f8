"""A control database that is away for a few seconds ends no run, and nothing is recorded twice."""

import logging
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import psycopg
import pytest
import sqlalchemy as sa

from tests.services.cutting_proxy import CuttingProxy, cutting_proxy
from tests.services.postgres import PostgresServer, RestartablePostgres, restartable_postgres
from tidemark.control import ControlDatabase, Mark, RunRecord
from tidemark.control.driver_errors import unreachable
from tidemark.control.url import control_url as parsed_url
from tidemark.errors import ControlAway, ControlError, ControlUnreachable, MarkMoved, RunInProgress, StateError

SHOP = "catalog/shop"


def move(control: ControlDatabase, expected: int | None, value: str, run_id: str = "r1", subject: str = SHOP) -> Mark:
    return control.marks.move(subject, expected, value, run_id=run_id, actor="ann@ship", reason="run")


class FirstRetry(logging.Handler):
    """Waits until an operation has failed once and is tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "Trying again" in record.getMessage():
            self.seen.set()


@pytest.fixture
def retried() -> Iterator[Event]:
    handler, log = FirstRetry(), logging.getLogger("tidemark.control.transactions")
    log.addHandler(handler)
    yield handler.seen
    log.removeHandler(handler)


# --- a server that is stopped, crashes or freezes ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def module_server() -> Iterator[RestartablePostgres]:
    with tempfile.TemporaryDirectory(prefix="tidemark-restart-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with restartable_postgres(folder) as server:
            yield server


@pytest.fixture
def server(module_server: RestartablePostgres) -> RestartablePostgres:
    with psycopg.connect(module_server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return module_server


@pytest.fixture
def away(server: RestartablePostgres) -> Iterator[ControlDatabase]:
    control = ControlDatabase(server.url)
    yield control
    control.close()


def one_run(control: ControlDatabase, number: int) -> None:
    run_id = f"r{number}"
    with control.leases.hold(SHOP, run_id) as lease:
        control.runs.begin(SHOP, run_id, detail={"number": number})
        lease.confirm()
        control.runs.update(run_id, mode="full")
        mark = control.marks.get(SHOP)
        move(control, mark and mark.version, f"value {number}", run_id)
        control.runs.finish(run_id, "published")


@pytest.mark.service
@pytest.mark.fault
def test_runs_go_on_through_restarts_and_crashes_and_record_everything_once(server, away):
    away.migrate()
    ended = Event()

    def work() -> int:
        number = 0
        while not ended.is_set():
            number += 1
            one_run(away, number)
        return number

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        for mode in ("fast", "immediate", "fast", "immediate"):
            before = len(away.runs.history(SHOP))
            server.stop(mode)
            server.start()
            while len(away.runs.history(SHOP)) < before + 3 and not done.done():
                pass
        ended.set()
        count = done.result(60)

    assert [record.run_id for record in away.runs.history(SHOP)] == [f"r{number}" for number in range(count, 0, -1)]
    assert {record.status for record in away.runs.history(SHOP)} == {"published"}
    assert [row.run_id for row in away.marks.audit(SHOP)] == [f"r{number}" for number in range(count, 0, -1)]
    assert away.marks.get(SHOP).version == count
    with away.leases.hold(SHOP, "last") as lease:
        assert lease.token == count + 1
    assert away.leases.held() == []


@pytest.mark.service
@pytest.mark.fault
def test_an_operation_waits_for_a_server_that_is_down(server, away, retried):
    away.runs.begin(SHOP, "r1")
    server.stop()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(away.runs.finish, "r1", "published")
        assert retried.wait(60)
        assert not waiting.done()
        server.start()
        assert waiting.result(60).status == "published"


@pytest.mark.service
@pytest.mark.fault
def test_the_first_use_waits_for_a_server_that_is_down(server, retried):
    control = ControlDatabase(server.url)
    server.stop()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(control.runs.begin, SHOP, "r1")
        assert retried.wait(60)
        server.start()
        assert waiting.result(60).status == "running"
    control.close()


@pytest.mark.service
@pytest.mark.fault
def test_a_server_that_stays_down_is_named_in_the_end(server, away, monkeypatch):
    away.migrate()
    server.stop()
    monkeypatch.setattr("tidemark.control.transactions.RIDE_OUT", 0.2)
    with pytest.raises(ControlAway, match=r"cannot be opened: .*refused.*Check `control:`"):
        away.runs.history(SHOP)
    server.start()


@pytest.mark.service
@pytest.mark.fault
def test_a_frozen_server_is_waited_for(server):
    with cutting_proxy(server.port) as proxy, ThreadPoolExecutor(1) as pool:
        control = ControlDatabase(server.url.replace(f":{server.port}/", f":{proxy.port}/"))
        control.runs.begin(SHOP, "r1")
        server.freeze()
        before = proxy.requests
        waiting = pool.submit(control.runs.finish, "r1", "published")
        while proxy.requests == before:
            assert not waiting.done()
        server.thaw()
        assert waiting.result(60).status == "published"
        assert len(control.runs.history(SHOP)) == 1
        control.close()


# --- commits whose answer is lost --------------------------------------------------------------------------------------


@pytest.fixture
def proxied(control_postgres: PostgresServer) -> Iterator[tuple[CuttingProxy, ControlDatabase, ControlDatabase]]:
    """A proxy, a database behind it, and the same database without it."""
    url = control_postgres.new_database()
    with cutting_proxy(control_postgres.port) as proxy:
        behind = ControlDatabase(url.replace(f":{control_postgres.port}/", f":{proxy.port}/"))
        direct = ControlDatabase(url)
        behind.migrate()
        yield proxy, behind, direct
        behind.close()
        direct.close()


@pytest.fixture
def running(proxied):
    """With a run that is under way and a mark at version 1."""
    direct = proxied[2]
    direct.runs.begin(SHOP, "r1")
    move(direct, None, "first", "r0")
    return proxied


WRITES: dict[str, Callable[[ControlDatabase], object]] = {
    "begin": lambda control: control.runs.begin(SHOP, "r2"),
    "update": lambda control: control.runs.update("r1", mode="full", detail={"more": 1}),
    "finish": lambda control: control.runs.finish("r1", "published", snapshot=7),
    "fail": lambda control: control.runs.finish("r1", "failed", error="why"),
    "move": lambda control: move(control, 1, "second"),
    "first move": lambda control: move(control, None, "other", subject="catalog/other"),
    "move by nobody": lambda control: control.marks.move(SHOP, 1, "x", run_id=None, actor="ann@ship", reason="by hand"),
    "rewind": lambda control: control.marks.rewind(SHOP, to_version=1, actor="ann@ship", reason="bad load"),
    "reset": lambda control: control.marks.reset(SHOP, actor="ann@ship", reason="dropped"),
}


def everything(control: ControlDatabase) -> list[object]:
    """All that is recorded, without moments and counters: a transaction that was not committed leaves a gap."""
    kept = []
    other = ("number", "id", "started_at", "finished_at", "moved_at", "at", "held_since", "expires_at")
    with control._transactions.reading() as connection:
        for table in ("tidemark_runs", "tidemark_marks", "tidemark_mark_values", "tidemark_mark_audit", "tidemark_leases"):
            for row in connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY 1, 2")):
                kept.append((table, {name: value for name, value in row._mapping.items() if name not in other}))
    return kept


@pytest.mark.service
@pytest.mark.parametrize("carried_out", [True, False], ids=["made", "not made"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_whose_commit_got_no_answer_is_made_once(running, control_postgres, write, carried_out):
    proxy, behind, direct = running
    url = control_postgres.new_database()
    undisturbed = ControlDatabase(url)
    undisturbed.runs.begin(SHOP, "r1")
    move(undisturbed, None, "first", "r0")
    expected = write(undisturbed)

    proxy.cut(b"COMMIT", carried_out=carried_out)
    got = write(behind)

    assert proxy.cuts == 1
    assert everything(direct) == everything(undisturbed)
    without_moments = {"moved_at": None, "started_at": None, "finished_at": None}
    for each in (got, expected):
        if isinstance(each, (Mark, RunRecord)):
            each.__dict__.update(without_moments)
    assert got == expected
    undisturbed.close()


@pytest.mark.service
@pytest.mark.parametrize("carried_out", [True, False], ids=["made", "not made"])
@pytest.mark.parametrize("word", [b"held_since", b"COMMIT"])
def test_a_lease_whose_answer_got_lost_is_held_once(proxied, word, carried_out):
    proxy, behind, direct = proxied
    proxy.cut(word, carried_out=carried_out)
    with behind.leases.hold(SHOP, "r1") as lease:
        assert proxy.cuts == 1
        assert lease.token == 1
        lease.confirm()
        with pytest.raises(RunInProgress), direct.leases.hold(SHOP, "r2"):
            pass
        proxy.cut(b"COMMIT", carried_out=carried_out)
        lease.confirm()
        proxy.cut(b"COMMIT", carried_out=carried_out)
    assert proxy.cuts == 3
    assert direct.leases.held() == []


@pytest.mark.service
def test_a_lease_that_another_took_meanwhile_is_not_taken_for_ours(proxied):
    """Not even one of the same run: a process on another host has it."""
    proxy, behind, direct = proxied
    proxy.cut(b"COMMIT", carried_out=False, before_cut=lambda: (end_open_transactions(direct), take_elsewhere(direct, "r1")))
    with pytest.raises(RunInProgress, match="run r1 is in progress on elsewhere"), behind.leases.hold(SHOP, "r1"):
        pass


def take_elsewhere(direct: ControlDatabase, run_id: str) -> None:
    with direct._transactions.writing() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO tidemark_leases (subject, token, run_id, host, pid, held_since, expires_at) "
                "VALUES (:subject, 1, :run_id, 'elsewhere', 1, now(), now() + interval '1 minute')"
            ),
            {"subject": SHOP, "run_id": run_id},
        )


@pytest.mark.service
def test_a_mark_that_another_moved_meanwhile_is_not_taken_for_ours(running):
    """Not even one of the same run, actor, reason and value: it was moved at another moment."""
    proxy, behind, direct = running
    proxy.cut(b"COMMIT", carried_out=False, before_cut=lambda: (end_open_transactions(direct), move(direct, 1, "second")))
    with pytest.raises(MarkMoved):
        move(behind, 1, "second")
    assert direct.marks.version(SHOP) == 2


@pytest.mark.service
def test_a_run_that_another_closed_meanwhile_stays_as_it_was_closed(running):
    proxy, behind, direct = running
    proxy.cut(
        b"COMMIT",
        carried_out=False,
        before_cut=lambda: (end_open_transactions(direct), direct.runs.finish("r1", "abandoned")),
    )
    with pytest.raises(StateError, match="is abandoned"):
        behind.runs.finish("r1", "published")


def end_open_transactions(direct: ControlDatabase) -> None:
    """As the server does when it notices that the client of one is gone."""
    with psycopg.connect(direct._transactions._url.set(drivername="postgresql").render_as_string(False)) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND datname = current_database() AND state LIKE 'idle in transaction%'"
        )
        other.commit()
        busy = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE datname = current_database() "
        while other.execute(busy + "AND mode = 'RowExclusiveLock'").fetchone() != (0,):
            other.commit()


@pytest.mark.service
def test_a_read_that_is_cut_off_is_read_again(running):
    proxy, behind, direct = running
    for read in (
        lambda control: control.runs.history(SHOP),
        lambda control: control.runs.newest(),
        lambda control: control.marks.get(SHOP),
        lambda control: control.leases.held(),
    ):
        proxy.cut(b"SELECT", carried_out=True)
        assert read(behind) == read(direct)
    assert proxy.cuts == 4


# --- what is not waited for --------------------------------------------------------------------------------------------


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: pytest.fail("it waits"))


@pytest.mark.service
@pytest.mark.usefixtures("no_waiting")
def test_a_server_that_answers_no_is_not_asked_again(control_postgres):
    for url in (control_postgres.url("nowhere"), control_postgres.url(user="nobody", password="x")):
        control = ControlDatabase(url)
        with pytest.raises(ControlUnreachable) as refused:
            control.runs.history(SHOP)
        assert not isinstance(refused.value, ControlAway)
        control.close()


@pytest.mark.fast
@pytest.mark.usefixtures("no_waiting")
def test_a_locked_sqlite_file_has_been_waited_for_already(tmp_path):
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db?timeout=0.01")
    control.migrate()
    other = ControlDatabase(f"sqlite:///{tmp_path}/control.db")._transactions
    with other.writing(), pytest.raises(ControlError, match="locked"):
        control.runs.begin(SHOP, "r1")
    control.close()
    other.close()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("words", "away"),
    [
        ("connection to server at 127.0.0.1, port 1 failed: Connection refused", True),
        ("FATAL:  the database system is starting up", True),
        ("FATAL:  the database system is shutting down", True),
        ("FATAL:  the database system is not yet accepting connections\nDETAIL:  Consistent recovery state", True),
        ("FATAL:  the database system is in recovery mode", True),
        ("FATAL:  sorry, too many clients already", True),
        ("server closed the connection unexpectedly", True),
        ("connection timeout expired", True),
        ("Connection reset by peer", True),
        ("first address: no\nsecond address: Connection refused", True),
        ('FATAL:  password authentication failed for user "ann"', False),
        ('FATAL:  database "nowhere" does not exist', False),
        ("FATAL:  no pg_hba.conf entry for host", False),
        ("server does not support SSL, but SSL was required", False),
    ],
)
def test_a_server_is_away_when_nobody_or_a_starting_one_answers(words, away):
    url = parsed_url("postgresql://ann:hunter2@db/tide")
    assert isinstance(unreachable(psycopg.OperationalError(words), url), ControlAway) == away


@pytest.mark.fast
def test_a_sqlite_file_is_never_away():
    url = parsed_url("sqlite:////nowhere/control.db")
    assert not isinstance(unreachable(OSError("connection refused"), url), ControlAway)
