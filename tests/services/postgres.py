"""PostgreSQL for tests: the demo's own server."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from demo.ports import free_port
from demo.postgres import PostgresServer, _initialised, postgres

__all__ = ["PostgresServer", "RestartablePostgres", "drop_slots", "logical_postgres", "postgres", "restartable_postgres"]


@contextmanager
def logical_postgres(folder: Path) -> Iterator[PostgresServer]:
    """A server whose log can be decoded. A commit is in the log when it returns: a test looks at once."""
    settings = {"wal_level": "logical", "max_replication_slots": "50", "max_wal_senders": "50", "synchronous_commit": "on"}
    with postgres(folder, **settings) as server:
        yield server


def drop_slots(url: str) -> None:
    """The replication slots of a database: with one it cannot be dropped."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
        )


@dataclass(frozen=True)
class RestartablePostgres:
    """A server that a test stops, starts and freezes."""

    folder: Path
    port: int
    binaries: Path
    system_user: str | None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = {"fsync": "off", "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": ""}
        words = " ".join(f"-c {name}={value}" for name, value in options.items())
        self._pg_ctl("start", "-l", str(self.folder / "data" / "log"), "-o", words)

    def stop(self, mode: str = "fast") -> None:
        """`fast` ends sessions in order, `immediate` as a crash does."""
        self._pg_ctl("stop", "-m", mode)

    def freeze(self) -> None:
        """Every process of it stops where it is; its connections stay open and silent."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def _pg_ctl(self, action: str, *options: str) -> None:
        command = [str(self.binaries / "pg_ctl"), action, "-w", "-D", str(self.folder / "data"), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=self.system_user, cwd=self.folder / "data")


@contextmanager
def restartable_postgres(folder: Path) -> Iterator[RestartablePostgres]:
    binaries, system_user = _initialised(folder / "data")
    server = RestartablePostgres(folder, free_port(), Path(binaries), system_user)
    server.start()
    try:
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.stop("immediate")
