import os
import socket
import sqlite3

import pytest

from tests.services.children import in_child
from tests.services.postgres import PostgresServer
from tidemark.control import ControlDatabase
from tidemark.errors import ConfigError, ControlError, ControlUnreachable

fast = pytest.mark.fast


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    """How outages are ridden out is another test: here the first failure is looked at."""
    monkeypatch.setattr("tidemark.control.transactions.RIDE_OUT", 0)


def failure(control: ControlDatabase) -> ControlError:
    with pytest.raises(ControlError) as failed:
        control.runs.begin("catalog/a", "r1")
    control.close()
    return failed.value


@fast
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("hunter2", "not the URL of a database"),
        ("postgresql://ann:hunter2@host:port/db", "not the URL of a database"),
        ("mysql://ann:hunter2@host/db", "'mysql' is not supported"),
        ("postgresql://ann:s3cr@hunter2@host/db", "Write @ as %40"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite:///file:hunter2?mode=memory&uri=true", "needs a file"),
    ],
)
def test_an_address_that_is_not_allowed_is_refused_without_repeating_it(url, words):
    with pytest.raises(ConfigError, match=words) as refused:
        ControlDatabase(url)
    assert "hunter2" not in str(refused.value)
    assert "Allowed: sqlite:///" in str(refused.value)


@fast
@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_postgresql_is_reached_by_psycopg_and_its_password_is_never_shown(scheme):
    control = ControlDatabase(f"{scheme}://ann:hunter2@db.example:5432/tide?sslpassword=hunter3")
    assert repr(control) == "ControlDatabase(Transactions('postgresql://ann@db.example:5432/tide'))"
    assert control._transactions._url.drivername == "postgresql+psycopg"


@fast
def test_a_driver_that_repeats_the_password_is_cut_short():
    error = failure(ControlDatabase("postgresql://ann:hunter2@127.0.0.1/tide?hunter2=1"))  # an option of that name
    assert 'invalid connection option "***"' in str(error)


@fast
def test_nothing_that_listens_is_unreachable():
    with socket.socket() as listener:  # bound and not listening: nobody else gets the port
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        error = failure(ControlDatabase(f"postgresql://ann:hunter2@127.0.0.1:{port}/tide"))
    assert isinstance(error, ControlUnreachable)
    assert f"postgresql://ann@127.0.0.1:{port}/tide cannot be opened" in str(error)
    assert "Check `control:`" in str(error)
    assert "hunter2" not in str(error)
    assert error.__suppress_context__  # the driver's own words stay out of the traceback


@pytest.mark.service
def test_a_wrong_password_is_named_without_it(control_postgres):
    control_postgres.execute(control_postgres.url(), "CREATE ROLE ann LOGIN PASSWORD 'right'")
    error = failure(ControlDatabase(control_postgres.url(user="ann", password="hunter2")))
    control_postgres.execute(control_postgres.url(), "DROP ROLE ann")
    assert isinstance(error, ControlUnreachable)
    assert "password authentication failed" in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.service
def test_a_database_that_does_not_exist_is_unreachable(control_postgres):
    error = failure(ControlDatabase(control_postgres.url("nowhere")))
    assert isinstance(error, ControlUnreachable)
    assert "nowhere" in str(error)


@pytest.mark.service
def test_a_user_without_rights_is_told_so(control_postgres):
    url = control_postgres.new_database()
    name = url.rpartition("/")[2]
    control_postgres.execute(url, "CREATE ROLE bob LOGIN PASSWORD 'right'")
    error = failure(ControlDatabase(control_postgres.url(name, user="bob", password="right")))
    control_postgres.execute(url, "DROP ROLE bob")
    assert not isinstance(error, ControlUnreachable)
    assert "permission denied" in str(error)
    assert "Give this user rights" in str(error)


@pytest.mark.service
def test_a_server_that_ends_our_connection_is_reached_again(control_postgres):
    url = control_postgres.new_database()
    control = ControlDatabase(url)
    control.runs.history("catalog/a")
    control_postgres.execute(
        url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemark'"
    )
    assert control.runs.history("catalog/a") == []

    with pytest.raises(ControlUnreachable, match="went away"):
        end_own_connection(control, control_postgres)
    control.close()


def end_own_connection(control: ControlDatabase, server: PostgresServer) -> None:
    with control._transactions.writing() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        server.execute(server.url(), f"SELECT pg_terminate_backend({pid})")
        connection.exec_driver_sql("SELECT 1")


@fast
def test_a_file_that_is_no_database_is_unreachable(tmp_path):
    (tmp_path / "control.db").write_text("a letter, not a database\n" * 100)
    error = failure(ControlDatabase(f"sqlite:///{tmp_path}/control.db"))
    assert isinstance(error, ControlUnreachable)
    assert "file is not a database" in str(error)


@fast
def test_a_folder_that_cannot_be_made_is_unreachable(tmp_path):
    (tmp_path / "file").write_text("")
    error = failure(ControlDatabase(f"sqlite:///{tmp_path}/file/control.db"))
    assert isinstance(error, ControlUnreachable)
    assert "its folder cannot be made" in str(error)


@fast
def test_a_locked_database_says_so(tmp_path):
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db?timeout=0.05")
    control.migrate()
    other = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    error = failure(control)
    other.close()
    assert "database is locked. Another process" in str(error)


@fast
def test_a_full_disk_says_so_and_loses_nothing(tmp_path):
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db")
    control.runs.begin("catalog/a", "r0")
    with control._transactions.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(ControlError, match=r"disk is full\. Free some space"):
        control.runs.update("r0", detail={"long": "x" * 100_000})
    assert control.runs.find("catalog/a", "r0").detail == {}
    control.close()


@fast
def test_a_forked_child_opens_connections_of_its_own(tmp_path):
    assert in_child(_read_in_a_fork, f"sqlite:///{tmp_path}/control.db") == 0


def _read_in_a_fork(url: str) -> None:
    control = ControlDatabase(url)
    control.runs.begin("catalog/a", "r1")
    parent = control._transactions._engine
    child = os.fork()
    if child == 0:
        own = [run.run_id for run in control.runs.history("catalog/a")] == ["r1"]
        os._exit(0 if own and control._transactions._engine is not parent else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    control.runs.finish("r1", "published")
    control.close()
