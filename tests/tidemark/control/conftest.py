"""Every test of the control database runs on SQLite and on PostgreSQL."""

import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.services.postgres import PostgresServer, postgres
from tidemark.clock import ManualClock
from tidemark.control import ControlDatabase

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
KINDS = [pytest.param("sqlite", marks=pytest.mark.fast), pytest.param("postgresql", marks=pytest.mark.service)]


@pytest.fixture(scope="session")
def control_postgres() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="tidemark-control-"))
    folder.chmod(0o755)  # as root, the server runs as a user of its own, which must reach its folder
    with postgres(folder) as server:
        yield server
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def control_postgres_url(control_postgres: PostgresServer) -> str:
    return control_postgres.new_database()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def control_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/control.db"
    url: str = request.getfixturevalue("control_postgres_url")
    server: PostgresServer = request.getfixturevalue("control_postgres")
    server.execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")  # a new database takes ten times as long
    return url


@pytest.fixture(scope="session")
def ordinary_url(control_postgres: PostgresServer) -> str:
    """A database whose owner is no superuser."""
    control_postgres.execute(
        control_postgres.url(), "CREATE ROLE tess LOGIN PASSWORD 'right'", "CREATE DATABASE streams OWNER tess"
    )
    return control_postgres.url("streams", user="tess", password="right")


@pytest.fixture
def ordinary_control_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database; on PostgreSQL as a role that row-level security holds for."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/control.db"
    url: str = request.getfixturevalue("ordinary_url")
    request.getfixturevalue("control_postgres").execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def control(control_url: str, clock: ManualClock) -> Iterator[ControlDatabase]:
    database = ControlDatabase(control_url, clock)
    yield database
    database.close()
