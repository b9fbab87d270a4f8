"""The URL of the control database: which are allowed, and how one is shown."""

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from tidemark.errors import ConfigError

ALLOWED = "Allowed: sqlite:///path/to/control.db or postgresql://user:password@host:5432/database."


def control_url(text: str) -> sa.URL:
    """The URL with the driver we use; what is not allowed is named without being repeated."""
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        # SQLAlchemy's message repeats the text, password and all.
        raise ConfigError(f"control: this is not the URL of a database. {ALLOWED}") from None
    if url.host and "@" in url.host:
        # The rest of the password would pass for the host, and hosts are shown.
        raise ConfigError(f"control: the user or password has a sign that URLs use. Write @ as %40, / as %2F. {ALLOWED}")
    backend = url.drivername.partition("+")[0]
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise ConfigError(f"control: '{backend}' is not supported. {ALLOWED}")
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise ConfigError(f"control: SQLite needs a file, since several processes share it. {ALLOWED}")
    return url.set(drivername="sqlite+pysqlite")


def shown(url: sa.URL) -> str:
    """The URL as a message may show it: no password, no options, for those may hold one too."""
    plain = sa.URL.create(url.get_backend_name(), url.username, None, url.host, url.port, url.database)
    return plain.render_as_string()
