import multiprocessing
import pickle
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from tidemark.control import ControlDatabase
from tidemark.control.migration import ADVISORY_LOCK, MIGRATIONS
from tidemark.control.schema import REVISION, VERSION_TABLE, metadata
from tidemark.control.url import control_url as parsed_url
from tidemark.errors import ControlTooNew


@pytest.fixture
def engine(control_url):
    engine = sa.create_engine(parsed_url(control_url))
    yield engine
    engine.dispose()


def test_the_migrations_make_the_tables_that_the_code_knows(control, engine):
    control.migrate()
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == REVISION


def test_every_migration_is_a_file_of_the_package():
    names = sorted(path.name for path in (MIGRATIONS / "versions").glob("v*.py"))
    assert names[-1].startswith(f"v{REVISION}_")


def test_migrating_twice_changes_nothing(control, engine):
    control.migrate()
    control.runs.begin("catalog/a", "r1")
    control.migrate()
    assert len(control.runs.history("catalog/a")) == 1


def test_the_first_use_migrates(control):
    assert control.runs.history("catalog/a") == []


def use(url: str, line) -> int:
    database = ControlDatabase(url)
    line.wait(60)
    database.migrate()
    found = len(database.runs.history("catalog/a"))
    database.close()
    return found


def test_threads_may_migrate_at_once(control_url):
    line = Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: use(control_url, line), range(8))) == [0] * 8


def test_processes_may_migrate_at_once(control_url):
    spawn = multiprocessing.get_context("spawn")
    line = spawn.Barrier(3)
    processes = [spawn.Process(target=use, args=(control_url, line)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]


@pytest.mark.fast
def test_threads_may_migrate_several_databases_at_once(tmp_path):
    line = Barrier(8)
    urls = [f"sqlite:///{tmp_path}/{number}.db" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda url: use(url, line), urls)) == [0] * 8


@pytest.mark.service
def test_on_postgresql_a_migration_waits_for_another(control_postgres):
    url = control_postgres.new_database()
    control = ControlDatabase(url)
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT pg_advisory_lock(%s)", [ADVISORY_LOCK])
        migrated = pool.submit(control.migrate)
        while other.execute(waits).fetchone() == (0,):
            assert not migrated.done()
        other.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY_LOCK])
        migrated.result(60)
    control.close()


@pytest.mark.fast
def test_two_that_turn_write_ahead_on_at_once_both_succeed(tmp_path, monkeypatch):
    other = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: other.execute("ROLLBACK"))
    monkeypatch.setattr("tidemark.control.engines.time", clock)
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db?timeout=0.01")
    assert control.runs.history("catalog/a") == []
    control.close()
    other.close()


def test_a_database_that_is_newer_than_the_code_is_refused_by_name(control, control_url, engine):
    control.migrate()
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))

    late = ControlDatabase(control_url)
    with pytest.raises(ControlTooNew, match=r"9999.*Upgrade Tidemark"):
        late.runs.history("catalog/a")
    late.close()


def test_a_failed_migration_leaves_nothing_behind(control, engine):
    # Something of ours is in the way half-way through.
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE tidemark_leases (x int)"))
    with pytest.raises(Exception, match="tidemark_leases"):
        control.migrate()
    assert sa.inspect(engine).get_table_names() == ["tidemark_leases"]


def test_a_database_that_shares_its_server_with_dagster_does_not_touch_its_tables(control, engine):
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE runs (x int)"))
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num text)"))
    control.migrate()
    assert control.runs.history("catalog/a") == []


def test_the_database_travels_to_another_process(control):
    control.runs.begin("catalog/a", "r1")
    copy = pickle.loads(pickle.dumps(control))
    assert [run.run_id for run in copy.runs.history("catalog/a")] == ["r1"]
    copy.close()


@pytest.mark.fast
def test_sqlite_writes_ahead_and_minds_foreign_keys(tmp_path):
    control = ControlDatabase(f"sqlite:///{tmp_path}/not/there/yet/control.db")
    control.migrate()
    with control._transactions.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # a moved mark survives a power cut
    control.close()
    assert sorted(path.name for path in (tmp_path / "not/there/yet").iterdir()) == ["control.db"]


@pytest.mark.fast
def test_a_write_on_sqlite_takes_the_lock_when_it_begins(tmp_path):
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db")
    control.migrate()
    other = sqlite3.connect(tmp_path / "control.db", timeout=0, isolation_level=None)
    with control._transactions.writing(), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    with control._transactions.reading():
        other.execute("BEGIN IMMEDIATE")
    other.close()
    control.close()
