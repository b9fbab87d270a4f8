"""Brings a control database to the newest schema, once, however many processes ask."""

from pathlib import Path
from threading import Lock

import sqlalchemy as sa

from tidemark.control.schema import REVISION, VERSION_TABLE
from tidemark.errors import ControlTooNew

MIGRATIONS = Path(__file__).parent / "migrations"

# Any number that no other program on the server uses for an advisory lock.
ADVISORY_LOCK = 7_431_302_118

_one_at_a_time = Lock()  # Alembic keeps its context in a global of the process


def migrate(connection: sa.Connection, name: str) -> None:
    """Migrates inside the caller's write transaction: it is all there afterwards, or nothing is."""
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE is such a lock already
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
    revision = _revision(connection)
    if revision == REVISION:  # another process was quicker
        return

    # Imported here: most processes find the database up to date and need none of it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise ControlTooNew(
            f"control database {name} is at revision {revision}, and this version of Tidemark knows revisions up to "
            f"{REVISION} only: a newer version upgraded it. Upgrade Tidemark here too; nothing was changed."
        )
    with _one_at_a_time:
        command.upgrade(config, "head")


def is_migrated(connection: sa.Connection) -> bool:
    """Whether the schema is the newest, asked without taking a lock."""
    return _revision(connection) == REVISION


def has_schema(connection: sa.Connection) -> bool:
    """Whether there is one of any version."""
    return _revision(connection) is not None


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version = sa.table(VERSION_TABLE, sa.column("version_num", sa.Text))
    return connection.execute(sa.select(version.c.version_num)).scalar()
