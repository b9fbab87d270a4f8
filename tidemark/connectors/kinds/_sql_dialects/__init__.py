"""What differs between databases, one module for each."""

from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

from tidemark.catalog.packs.base import database_file
from tidemark.connectors.kinds._sql_dialects.base import Column, Dialect
from tidemark.connectors.kinds._sql_dialects.duckdb import DuckdbDialect
from tidemark.connectors.kinds._sql_dialects.mariadb import MariadbDialect
from tidemark.connectors.kinds._sql_dialects.postgresql import PostgresqlDialect
from tidemark.connectors.kinds._sql_dialects.sqlite import SqliteDialect
from tidemark.errors import ConfigError

__all__ = ["Column", "Dialect", "dialect_for"]

DIALECTS: tuple[type[Dialect], ...] = (PostgresqlDialect, MariadbDialect, SqliteDialect, DuckdbDialect)


def dialect_for(url: str, credentials: Mapping[str, str]) -> Dialect:
    """The dialect that the URL's scheme names. The URL itself stays out of messages: it may hold a password."""
    scheme = url.partition("://")[0]
    for dialect in DIALECTS:
        if scheme in dialect.schemes:
            return dialect(*_addressed(url, credentials, dialect.port))
    known = ", ".join(f"{each.schemes[0]}://" for each in DIALECTS)
    raise ConfigError(f"the url of a sql connector must start with one of {known}")


def _addressed(url: str, credentials: Mapping[str, str], port: int | None) -> tuple[str, str]:
    """The URL with the login put in where it has none, and what a message may call it."""
    if port is None or ":///" in url:
        return url, f"{url.partition('://')[0]} file {database_file(url).name}"
    try:
        parts = urlsplit(url)
        port = parts.port or port
    except ValueError:
        raise ConfigError(
            "the url of a sql connector cannot be read: host or port is wrong. Are special characters of its password %XX?"
        ) from None
    if not parts.username and "user" in credentials:
        host = parts.netloc.rpartition("@")[2]
        login = quote(credentials["user"], safe="")
        if password := credentials.get("password"):
            login += f":{quote(password, safe='')}"
        url = urlunsplit(parts._replace(netloc=f"{login}@{host}"))
    return url, f"{parts.hostname}:{port}{parts.path}"
