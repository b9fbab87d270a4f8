"""`dagster-storage`: the PostgreSQL database in which several hosts keep one Dagster instance."""

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tidemark.config.environment import substituted

_REFERENCE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"
_PASSWORD = re.compile(f":{_REFERENCE}@")
ALLOWED = "postgresql://user:${NAME}@host:5432/database"


@dataclass(frozen=True)
class DagsterStorage:
    """Where the instance is kept. Of the password only the variable is known: dagster.yaml must not hold it."""

    host: str
    port: int
    database: str
    user: str
    password_variable: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"


def dagster_storage(text: str) -> DagsterStorage:
    """The storage that the setting describes, given as it is written: with references. `ValueError` says what is wrong."""
    password = _PASSWORD.search(text)
    url = urlsplit(substituted(_PASSWORD.sub("@", text, count=1)))
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if url.password is not None or any("pass" in name.lower() for name in options):
        raise ValueError("the password must be a reference, ${NAME}, and nothing else: it is never written to dagster.yaml.")
    port = _port(url)
    if url.scheme not in ("postgresql", "postgres") or not (url.hostname and url.username and len(url.path) > 1 and port):
        raise ValueError(f"must be {ALLOWED}.")
    return DagsterStorage(
        host=url.hostname,
        port=port,
        database=unquote(url.path[1:]),
        user=unquote(url.username),
        password_variable=password and password[1],
        options=options,
    )


def _port(url: SplitResult) -> int | None:
    try:
        return url.port or 5432
    except ValueError:  # its words repeat what is written
        return None
