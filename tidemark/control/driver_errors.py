"""Names for what a database driver may raise."""

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tidemark.control.url import shown
from tidemark.errors import ControlAway, ControlError, ControlUnreachable

CHECK_ADDRESS = "Check `control:` in the configuration, and that the database is up and lets this user in."

# Part of the driver's words → what to do about it.
ADVICE = {
    "database is locked": "Another process kept writing for too long; run again when it has ended.",
    "disk is full": "Free some space and run again; nothing was changed.",
    "No space left": "Free some space and run again; nothing was changed.",
    "readonly database": "Give this user the right to write the file and its folder.",
    "read-only transaction": "The server takes no writes now; point `control:` at the primary.",
    "permission denied": "Give this user rights on the tables of Tidemark.",
}


# Parts of what is said of a server that is away for now. Everything else is answered by somebody, and stays as it is.
AWAY = (
    "connection refused",
    "connection reset",
    "connection timeout",
    "timeout expired",
    "broken pipe",
    "server closed the connection",
    "terminating connection",
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting connections",
    "too many clients",
    "remaining connection slots",
    "no route to host",
    "network is unreachable",
    "temporary failure in name resolution",
    "name or service not known",
    "could not translate host name",
)


def unreachable(error: Exception, url: sa.URL) -> ControlUnreachable:
    """The error for a database that could not be opened."""
    words = _words(error, url)
    # psycopg reports one line for every address that it tried: the answer may be in any of them.
    is_away = url.get_backend_name() != "sqlite" and any(part in str(error).lower() for part in AWAY)
    kind = ControlAway if is_away else ControlUnreachable
    return kind(f"control database {shown(url)} cannot be opened: {words}. {CHECK_ADDRESS}")


def named(error: SQLAlchemyError, url: sa.URL) -> ControlError:
    """The error for a database that was open and failed."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return ControlAway(f"control database {shown(url)} went away: {_words(error, url)}. {CHECK_ADDRESS}")
    words = _words(error, url)
    advice = next((advice for part, advice in ADVICE.items() if part in words), "Nothing was changed by this step.")
    return ControlError(f"control database {shown(url)} failed: {words}. {advice}")


def _words(error: Exception, url: sa.URL) -> str:
    """The driver's first line: the rest may quote statements, parameters and rows."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    lines = str(cause).strip().splitlines()
    words = lines[0].rstrip(".") if lines else type(cause).__name__
    secrets = [str(url.password or ""), *(str(value) for key, value in url.query.items() if "pass" in key.lower())]
    for secret in filter(None, secrets):
        words = words.replace(secret, "***")
    return words
