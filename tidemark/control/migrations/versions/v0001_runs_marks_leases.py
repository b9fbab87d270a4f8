"""Runs, marks with their audit, leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

STATUSES = ("running", "published", "unchanged", "failed", "rolled-back", "abandoned")

big_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    _create_runs()
    _create_marks()
    _create_leases()
    if op.get_bind().dialect.name == "sqlite":
        _refuse_changes_on_sqlite()
    else:
        _refuse_changes_on_postgresql()


def _create_runs() -> None:
    op.create_table(
        "tidemark_runs",
        sa.Column("number", big_number, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.Text, nullable=False, unique=True),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("mode", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("finished_at", moment),
        sa.Column("base_snapshot", sa.BigInteger),
        sa.Column("snapshot", sa.BigInteger),
        sa.Column("marker", sa.Text),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.Column("error", sa.Text),
        sa.CheckConstraint(sa.column("status").in_(STATUSES), name="tidemark_runs_status"),
    )
    op.create_index("tidemark_runs_of_subject", "tidemark_runs", ["system", "subject", "number"])


def _create_marks() -> None:
    op.create_table(
        "tidemark_marks",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("snapshot", sa.BigInteger),
        sa.Column("run_id", sa.Text),
        sa.Column("moved_at", moment, nullable=False),
    )
    op.create_table(
        "tidemark_mark_audit",
        sa.Column("id", big_number, primary_key=True, autoincrement=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("from_version", sa.BigInteger),
        sa.Column("to_version", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("snapshot", sa.BigInteger),
        sa.Column("run_id", sa.Text),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", moment, nullable=False),
        sa.UniqueConstraint("subject", "to_version", name="tidemark_mark_audit_one_move_a_version"),
    )


def _create_leases() -> None:
    op.create_table(
        "tidemark_leases",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("host", sa.Text),
        sa.Column("boot_id", sa.Text),
        sa.Column("pid", sa.BigInteger),
        sa.Column("process_started", sa.Text),
        sa.Column("held_since", moment),
        sa.Column("expires_at", moment),
    )


def _refuse_changes_on_sqlite() -> None:
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER tidemark_mark_audit_no_{change.lower()} BEFORE {change} ON tidemark_mark_audit "
            "BEGIN SELECT RAISE(ABORT, 'the audit of marks is append-only'); END"
        )
    # INSERT OR REPLACE deletes without firing the trigger above.
    op.execute(
        "CREATE TRIGGER tidemark_mark_audit_no_replace BEFORE INSERT ON tidemark_mark_audit "
        "WHEN EXISTS (SELECT 1 FROM tidemark_mark_audit a WHERE a.id = NEW.id "
        "OR (a.subject = NEW.subject AND a.to_version = NEW.to_version)) "
        "BEGIN SELECT RAISE(ABORT, 'the audit of marks is append-only'); END"
    )


def _refuse_changes_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION tidemark_refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit of marks is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER tidemark_mark_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tidemark_mark_audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION tidemark_refuse_change()"
    )
