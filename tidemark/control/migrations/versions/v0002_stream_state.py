"""The state of streams, its sealed values, its audit.

Row-level security is forced on the owner too. A later migration that changes rows of these tables sees none of them
unless it takes the force off and puts it back: `ALTER TABLE ... NO FORCE ROW LEVEL SECURITY`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

MOVES = ("commit", "rewind", "reset")
TABLES = ("tidemark_stream_state", "tidemark_stream_value", "tidemark_stream_audit")

big_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    _create_state()
    _create_audit()
    if op.get_bind().dialect.name == "sqlite":
        _refuse_changes_on_sqlite()
    else:
        _refuse_changes_on_postgresql()
        _keep_tenants_apart()


def _create_state() -> None:
    op.create_table(
        "tidemark_stream_state",
        sa.Column("tenant_id", sa.Text, primary_key=True),
        sa.Column("connector_id", sa.Text, primary_key=True),
        sa.Column("stream_id", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("cursor_field", sa.Text),
        sa.Column("run_id", sa.Text),
        sa.Column("updated_at", moment, nullable=False),
    )
    op.create_table(
        "tidemark_stream_value",
        sa.Column("tenant_id", sa.Text, primary_key=True),
        sa.Column("connector_id", sa.Text, primary_key=True),
        sa.Column("stream_id", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("cursor_field", sa.Text, nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
    )


def _create_audit() -> None:
    op.create_table(
        "tidemark_stream_audit",
        sa.Column("id", big_number, primary_key=True, autoincrement=True),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("connector_id", sa.Text, nullable=False),
        sa.Column("stream_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("from_version", sa.BigInteger),
        sa.Column("to_version", sa.BigInteger, nullable=False),
        sa.Column("restored_version", sa.BigInteger),
        sa.Column("run_id", sa.Text),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", moment, nullable=False),
        sa.CheckConstraint(sa.column("kind").in_(MOVES), name="tidemark_stream_audit_kind"),
        sa.UniqueConstraint(
            "tenant_id", "connector_id", "stream_id", "to_version", name="tidemark_stream_audit_one_move_a_version"
        ),
    )


def _refuse_changes_on_sqlite() -> None:
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER tidemark_stream_audit_no_{change.lower()} BEFORE {change} ON tidemark_stream_audit "
            "BEGIN SELECT RAISE(ABORT, 'the audit of streams is append-only'); END"
        )
    # INSERT OR REPLACE deletes without firing the trigger above.
    op.execute(
        "CREATE TRIGGER tidemark_stream_audit_no_replace BEFORE INSERT ON tidemark_stream_audit "
        "WHEN EXISTS (SELECT 1 FROM tidemark_stream_audit a WHERE a.id = NEW.id OR (a.tenant_id = NEW.tenant_id AND "
        "a.connector_id = NEW.connector_id AND a.stream_id = NEW.stream_id AND a.to_version = NEW.to_version)) "
        "BEGIN SELECT RAISE(ABORT, 'the audit of streams is append-only'); END"
    )


def _refuse_changes_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION tidemark_refuse_stream_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit of streams is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER tidemark_stream_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tidemark_stream_audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION tidemark_refuse_stream_change()"
    )


def _keep_tenants_apart() -> None:
    # A setting that was local to an earlier transaction reads as '' afterwards, and '' must be nobody.
    tenant = "tenant_id = NULLIF(current_setting('tidemark.tenant', true), '')"
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY {table}_of_tenant ON {table} USING ({tenant}) WITH CHECK ({tenant})")
