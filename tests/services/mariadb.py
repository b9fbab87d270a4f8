"""A real MariaDB (Debian `mariadb-server`) on 127.0.0.1. `root` is trusted; `reader` may read, and needs its password."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pymysql

from tests.services.needs import need
from tests.services.ports import free_port

START_SECONDS = 60
PACKAGE = "mariadb-server"
# With all that a URL and SQL could stumble over.
PASSWORD = "s3cret/p@ss:'w\\rd"
# Nothing here has to survive a power cut. A zone and a collation of its own, so that neither is taken for granted.
OPTIONS = {
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-flush-method": "nosync",
    "innodb-buffer-pool-size": "64M",
    "default-time-zone": "+05:30",
    "character-set-server": "utf8mb4",
    "collation-server": "utf8mb4_general_ci",
}


@dataclass(frozen=True)
class MariadbServer:
    port: int
    log: Path

    def url(self, database: str, user: str = "reader", password: str = PASSWORD) -> str:
        return (
            f"mariadb://{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:{self.port}/{quote(database, safe='')}"
        )

    def new_database(self) -> str:
        """The name of an empty database."""
        name = f"t_{uuid4().hex[:12]}"
        self.execute(None, f"CREATE DATABASE {name}")
        return name

    def execute(self, database: str | None, *sql: str, values: Any = None) -> None:
        """Runs statements as root, in a session in UTC that takes backslashes literally and lets everything be stored."""
        session = "SET time_zone = '+00:00', sql_mode = 'NO_BACKSLASH_ESCAPES,ALLOW_INVALID_DATES'"
        with self.connected(database) as connection, connection.cursor() as cursor:
            cursor.execute(session)
            for statement in sql:
                if isinstance(values, list):
                    cursor.executemany(statement, values)
                else:
                    cursor.execute(statement, values)

    def connected(self, database: str | None = None) -> "pymysql.Connection[Any]":
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, charset="utf8mb4"
        )


@contextmanager
def mariadb(folder: Path) -> Iterator[MariadbServer]:
    """Starts a server whose data live in a new folder `data` of `folder`, and stops it."""
    server, install = need("mariadbd", PACKAGE), need("mariadb-install-db", PACKAGE)
    data, port = folder / "data", free_port()
    # It does not run as root; the package has a system user for it.
    owner = ["--user=mysql"] if os.geteuid() == 0 else []
    with (folder / "log").open("wb") as log:
        prepare = ["--auth-root-authentication-method=normal", "--skip-test-db", f"--datadir={data}", *owner]
        subprocess.run([install, "--no-defaults", *prepare], stdout=log, stderr=log, check=True)
        options = {"datadir": str(data), "socket": str(data / "socket"), "pid-file": str(data / "pid")}
        options |= {"bind-address": "127.0.0.1", "port": str(port), **OPTIONS}
        command = [server, "--no-defaults", *owner, *(f"--{name}={value}" for name, value in options.items())]
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    started = MariadbServer(port, folder / "log")
    try:
        _wait(started, process)
        started.execute(None, "CREATE USER reader@'127.0.0.1' IDENTIFIED BY %s", values=(PASSWORD,))
        started.execute(None, "GRANT SELECT ON *.* TO reader@'127.0.0.1'")
        yield started
    finally:
        process.kill()  # its data go with the test
        process.wait(START_SECONDS)


def _wait(server: MariadbServer, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            server.connected().close()
            return
        except pymysql.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"MariaDB did not start:\n{server.log.read_text()}") from None
            time.sleep(0.05)
