"""The four databases that the kind `sql` reads, behind one face: a URL to read from, and a way to put something in."""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from tests.services.mariadb import MariadbServer
from tests.services.postgres import PostgresServer

Rows = Iterable[tuple[Any, ...]]

# The same thing in the words of each.
TYPES = {
    "postgresql": {
        "instant": "timestamptz",
        "clock": "timestamp",
        "text": "text",
        "money": "numeric(20, 6)",
        "bytes": "bytea",
    },
    "mariadb": {
        "instant": "timestamp(6) NULL DEFAULT NULL",
        "clock": "datetime(6)",
        "text": "varchar(200)",
        "money": "decimal(20, 6)",
        "bytes": "varbinary(200)",
    },
    "sqlite": {"instant": "DATETIME", "clock": "DATETIME", "text": "TEXT", "money": "NUMERIC", "bytes": "BLOB"},
    "duckdb": {
        "instant": "TIMESTAMPTZ",
        "clock": "TIMESTAMP",
        "text": "VARCHAR",
        "money": "DECIMAL(20, 6)",
        "bytes": "BLOB",
    },
}


@dataclass(frozen=True)
class Database:
    """One database. `run` says a statement, once for each row of values."""

    name: str
    url: str
    run: Callable[[str, list[tuple[Any, ...]]], None]
    placeholder: str = "?"

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.run(statement, [])

    def create(self, table: str, **fields: str) -> None:
        """A table whose fields are of types that all four have, by their common names."""
        own = TYPES[self.name]
        described = ", ".join(f"{self.quoted(name)} {own.get(type, type)}" for name, type in fields.items())
        self.execute(f"CREATE TABLE {self.quoted(table)} ({described})")

    def put(self, table: str, rows: Rows) -> None:
        given = [tuple(self._value(value) for value in row) for row in rows]
        if given:
            places = ", ".join([self.placeholder] * len(given[0]))
            into = self.quoted(table).replace("%", "%%" if self.placeholder == "%s" else "%")
            self.run(f"INSERT INTO {into} VALUES ({places})", given)

    def quoted(self, name: str) -> str:
        mark = "`" if self.name == "mariadb" else '"'
        return mark + name.replace(mark, mark * 2) + mark

    def _value(self, value: Any) -> Any:
        if isinstance(value, datetime) and self.name == "sqlite":
            return value.isoformat().replace("+00:00", "Z")
        if isinstance(value, Decimal) and self.name == "sqlite":
            return str(value)
        if isinstance(value, datetime) and value.tzinfo and self.name == "mariadb":
            return value.astimezone(UTC).replace(tzinfo=None)
        return value


def sqlite_database(folder: Path) -> Database:
    path = folder / "shop.db"

    def run(sql: str, values: list[tuple[Any, ...]]) -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.executemany(sql, values) if values else connection.execute(sql)
        connection.close()

    return Database("sqlite", f"sqlite:///{path}", run)


def duckdb_database(folder: Path) -> Database:
    path = folder / "shop.duckdb"

    def run(sql: str, values: list[tuple[Any, ...]]) -> None:
        with duckdb.connect(str(path)) as connection:
            connection.executemany(sql, values) if values else connection.execute(sql)

    return Database("duckdb", f"duckdb:///{path}", run)


def postgresql_database(server: PostgresServer) -> Database:
    url = server.new_database()

    def run(sql: str, values: list[tuple[Any, ...]]) -> None:
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.executemany(sql.encode(), values) if values else cursor.execute(sql.encode())

    return Database("postgresql", url, run, "%s")


def mariadb_database(server: MariadbServer) -> Database:
    name = server.new_database()

    def run(sql: str, values: list[tuple[Any, ...]]) -> None:
        server.execute(name, sql, values=values or None)

    return Database("mariadb", server.url(name), run, "%s")
