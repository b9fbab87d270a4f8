"""The tables of the control database, as the newest migration leaves them.

The names are prefixed: Dagster's own storage has a table `runs`, and the two may share one PostgreSQL database.
"""

from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

REVISION = "0004"  # of the newest migration; lets a process that finds it skip Alembic
VERSION_TABLE = "tidemark_version"

metadata = sa.MetaData()

BigNumber = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts up only columns called INTEGER


class Moment(TypeDecorator[datetime]):
    """A moment in UTC: `timestamptz` on PostgreSQL, text on SQLite, which has no zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


runs = sa.Table(
    "tidemark_runs",
    metadata,
    sa.Column("number", BigNumber, primary_key=True, autoincrement=True),  # the order they began in
    sa.Column("run_id", sa.Text, nullable=False, unique=True),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("mode", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("finished_at", Moment),
    sa.Column("base_snapshot", sa.BigInteger),
    sa.Column("snapshot", sa.BigInteger),
    sa.Column("marker", sa.Text),
    sa.Column("detail", sa.JSON, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("dagster_run", sa.Text),  # the Dagster run that carried it
    sa.Index("tidemark_runs_of_subject", "subject", "number"),
    sa.Index("tidemark_runs_of_dagster_run", "dagster_run"),
)

# What is left of runs whose rows upkeep removed: a counter that went down would be taken for a new one.
forgotten_runs = sa.Table(
    "tidemark_forgotten_runs",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("status", sa.Text, primary_key=True),
    sa.Column("runs", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
)

# The three tables of marks. `tenant` is '' for subjects of no tenant: on PostgreSQL row-level security shows those rows to
# everybody, and all others only to a transaction of their tenant.
marks = sa.Table(
    "tidemark_marks",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("has_value", sa.Boolean, nullable=False),  # false after a reset: the row stays, so that versions count on
    sa.Column("field", sa.Text),
    sa.Column("snapshot", sa.BigInteger),
    sa.Column("run_id", sa.Text),
    sa.Column("moved_at", Moment, nullable=False),
)

# The value of every version, the current one included. Not append-only: a new key re-seals them.
mark_values = sa.Table(
    "tidemark_mark_values",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("field", sa.Text),
    sa.Column("value", sa.Text, nullable=False),  # plain, or sealed for the subjects of a tenant
)

# Triggers refuse to change or delete a row of it; it holds no value.
mark_audit = sa.Table(
    "tidemark_mark_audit",
    metadata,
    sa.Column("id", BigNumber, primary_key=True, autoincrement=True),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),  # commit, rewind or reset
    sa.Column("from_version", sa.BigInteger),
    sa.Column("to_version", sa.BigInteger, nullable=False),
    sa.Column("restored_version", sa.BigInteger),  # whose value a rewind took up again
    sa.Column("snapshot", sa.BigInteger),
    sa.Column("run_id", sa.Text),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.UniqueConstraint("subject", "to_version", name="tidemark_mark_audit_one_move_a_version"),
)

# A row stays when its lease is released (run_id is then NULL), so that its token never starts again.
leases = sa.Table(
    "tidemark_leases",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("run_id", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("boot_id", sa.Text),
    sa.Column("pid", sa.BigInteger),
    sa.Column("process_started", sa.Text),
    sa.Column("held_since", Moment),
    sa.Column("expires_at", Moment),
)
