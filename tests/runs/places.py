"""Where the state of a test is kept, so that it can be put back: a folder, or a folder with a bucket and a database."""

import hashlib
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg

from tests.services.s3 import S3Server
from tidemark.lake_sweep import without_checksum
from tidemark.platform import Platform

DATABASES = ("control.db", "lake.db")
# The heart of a lease beats when it likes: that changes nothing that the next run looks at.
IGNORED = ("expires_at",)


class Place(Protocol):
    """All that outlives a process."""

    def keep(self) -> None:
        """Remembers everything as it is now."""

    def restore(self) -> None:
        """Everything as it was when it was kept."""

    def fingerprint(self) -> str:
        """Two moments that have the same one are the same to whoever comes next."""


@dataclass(frozen=True)
class Folder:
    """Store, lake, both databases and the source, all in one folder."""

    here: Path

    @property
    def aside(self) -> Path:
        return self.here.with_name(f"{self.here.name}-aside")

    def keep(self) -> None:
        shutil.rmtree(self.aside, ignore_errors=True)
        shutil.copytree(self.here, self.aside)

    def restore(self) -> None:
        shutil.rmtree(self.here)
        shutil.copytree(self.aside, self.here)

    def fingerprint(self) -> str:
        return hashlib.sha256(repr(self.contents()).encode()).hexdigest()

    def contents(self) -> list[Any]:
        # A file may go while its folder is listed: another thread of the run is at work.
        files = [path for path in sorted(self.here.rglob("*")) if path.is_file()]
        plain = [path for path in files if not path.name.startswith((*DATABASES, ".lock"))]
        stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in plain if path.exists()]
        return [stats, *(rows_of_sqlite(path) for path in files if path.name in DATABASES)]


def rows_of_sqlite(path: Path) -> dict[str, list[Any]]:
    """Every row of every table. By a connection of its own: what a transaction has not committed is not there."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)
    connection.row_factory = sqlite3.Row
    try:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        found = {table: connection.execute(f'SELECT * FROM "{table}"').fetchall() for table in tables}
    finally:
        connection.close()
    return {
        table: [[row[key] for key in row.keys() if key not in IGNORED] for row in rows]  # noqa: SIM118
        for table, rows in found.items()
    }


@dataclass(frozen=True)
class Remote:
    """The store and the lake in a bucket, the control database and the lake's catalogue in a database."""

    folder: Folder
    s3: S3Server
    bucket: str
    database: str
    objects: dict[str, bytes] = field(default_factory=dict)
    rows: dict[str, bytes] = field(default_factory=dict)

    def keep(self) -> None:
        self.folder.keep()
        client = self.s3.client()
        self.objects.clear()
        for key in self._etags(client):
            self.objects[key] = client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        with psycopg.connect(self.database) as connection:
            self.rows.clear()
            for table in self._tables(connection):
                with connection.cursor().copy(f'COPY "{table}" TO STDOUT'.encode()) as copy:
                    self.rows[table] = b"".join(copy)

    def restore(self) -> None:
        self.folder.restore()
        client = self.s3.client()
        found = self._etags(client)
        for key in found.keys() - self.objects.keys():
            client.delete_object(Bucket=self.bucket, Key=key)
        for key, body in self.objects.items():
            if found.get(key) != f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"':
                client.put_object(Bucket=self.bucket, Key=key, Body=body)
        with psycopg.connect(self.database) as connection:
            # Java keeps the connections of every session that it ever opened, and the server has a hundred.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            # No trigger: the audit of marks lets nobody delete.
            connection.execute("SET session_replication_role = replica")
            if not self.rows:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
            for table in self._tables(connection):
                if table not in self.rows:
                    connection.execute(f'DROP TABLE "{table}" CASCADE'.encode())
                    continue
                connection.execute(f'DELETE FROM "{table}"'.encode())
                with connection.cursor().copy(f'COPY "{table}" FROM STDIN'.encode()) as copy:
                    copy.write(self.rows[table])

    def fingerprint(self) -> str:
        with psycopg.connect(self.database) as connection:
            tables = self._tables(connection)
            rows = {table: self._rows(connection, table) for table in tables}
        parts = (self._etags(self.s3.client()), rows, self.folder.contents())
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _rows(self, connection: psycopg.Connection, table: str) -> list[Any]:
        cursor = connection.execute(f'SELECT * FROM "{table}"'.encode())
        names = [column.name for column in cursor.description or ()]
        rows = ([value for name, value in zip(names, row, strict=True) if name not in IGNORED] for row in cursor)
        return sorted(rows, key=repr)

    def _etags(self, client: Any) -> dict[str, str]:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {each["Key"]: each["ETag"] for page in pages for each in page.get("Contents", ())}

    @staticmethod
    def _tables(connection: psycopg.Connection) -> list[str]:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [row[0] for row in found]


def strays_of(platform: Platform, table: str, known: set[str] | None = None) -> list[str]:
    """Branches of a table, and files in its folder that nothing refers to."""
    settings = platform.lake_settings
    known = platform.reader.referenced(table) if known is None else known
    where = table.replace(".", "/")
    if settings.on_s3:
        files = [platform.store.uri(info.key) for info in platform.store.list(f"lake/{where}")]
    else:
        files = [str(path) for path in (Path(settings.warehouse) / where).rglob("*") if path.is_file()]
    return [*(path for path in files if without_checksum(path) not in known), *platform.reader.branches(table)]
