"""One store of marks, and addresses as the subjects of ledger, marks and leases.

Until now a catalogue's runs were filed under `<app>/<id>`, a stream's under `<tenant>/<connector>/<stream>` and a model's
under its name, each with a system; marks and leases had the system in front, and streams had three tables of their own.

The old tables are set aside, new ones take their names, the rows are copied by the database, and the old ones are dropped.
Sealed values are copied as they are: what they are bound to has not changed (see `sealing.Place`).
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

STATUSES = ("running", "published", "unchanged", "failed", "abandoned")
MOVES = ("commit", "rewind", "reset")
SET_ASIDE = (
    "tidemark_runs",
    "tidemark_marks",
    "tidemark_mark_audit",
    "tidemark_stream_state",
    "tidemark_stream_value",
    "tidemark_stream_audit",
)
MARKS = ("tidemark_marks", "tidemark_mark_values", "tidemark_mark_audit")

# What a model's state held after a reset; from now on such a mark has no value.
MODEL_RESET = json.dumps({"form": 1, "reset": True})
ABANDONED = "RunAbandoned: the process of this run ended before the run did; a later run closed its row."

# A row of a stream belongs to the tenant in its address, and every other row to nobody.
OF_TENANT = (
    "CASE WHEN substr(subject, 1, 7) = 'stream/' "
    "THEN tenant <> '' AND substr(subject, 8, length(tenant) + 1) = tenant || '/' ELSE tenant = '' END"
)

big_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    if on_postgresql:
        _set_aside_on_postgresql()
    else:
        _set_aside_on_sqlite()
    _create_runs()
    _create_marks()
    _name_subjects()
    _copy_runs()
    _copy_marks()
    _copy_leases()
    for table in SET_ASIDE:
        op.drop_table(f"{table}_0002")
    if on_postgresql:
        _count_on()
        _refuse_changes_on_postgresql()
        _keep_tenants_apart()
    else:
        _refuse_changes_on_sqlite()


# --- the old tables ----------------------------------------------------------------------------------------------------


def _set_aside_on_postgresql() -> None:
    """Indexes and sequences keep their names when a table is renamed, and would be in the way of the new ones."""
    for table in SET_ASIDE:
        if table.startswith("tidemark_stream"):
            op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")  # else the copy below sees no row
        op.execute(f"ALTER TABLE {table} RENAME TO {table}_0002")
    left = op.get_bind().execute(
        sa.text(
            "SELECT c.relkind = 'S', c.relname FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid "
            "LEFT JOIN pg_depend d ON d.objid = c.oid AND d.classid = 'pg_class'::regclass "
            "AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') AND c.relkind = 'S' "
            "JOIN pg_class t ON t.oid = coalesce(i.indrelid, d.refobjid) "
            "JOIN pg_namespace n ON n.oid = t.relnamespace "
            "WHERE n.nspname = current_schema() AND t.relname = ANY(:tables)"
        ),
        {"tables": [f"{table}_0002" for table in SET_ASIDE]},
    )
    for is_sequence, name in left.all():
        op.execute(f"ALTER {'SEQUENCE' if is_sequence else 'INDEX'} {name} RENAME TO {name}_0002")


def _set_aside_on_sqlite() -> None:
    for audit in ("mark", "stream"):
        for refused in ("update", "delete", "replace"):
            op.execute(f"DROP TRIGGER tidemark_{audit}_audit_no_{refused}")
    op.drop_index("tidemark_runs_of_subject", "tidemark_runs")
    for table in SET_ASIDE:
        op.rename_table(table, f"{table}_0002")


# --- the new tables ----------------------------------------------------------------------------------------------------


def _create_runs() -> None:
    op.create_table(
        "tidemark_runs",
        sa.Column("number", big_number, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.Text, nullable=False, unique=True),
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
        sa.Column("dagster_run", sa.Text),
        sa.CheckConstraint(sa.column("status").in_(STATUSES), name="tidemark_runs_status"),
        sa.CheckConstraint("status <> 'abandoned' OR error IS NOT NULL", name="tidemark_runs_abandoned_says_why"),
    )
    op.create_index("tidemark_runs_of_subject", "tidemark_runs", ["subject", "number"])
    op.create_index("tidemark_runs_of_dagster_run", "tidemark_runs", ["dagster_run"])


def _create_marks() -> None:
    op.create_table(
        "tidemark_marks",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("has_value", sa.Boolean, nullable=False),
        sa.Column("field", sa.Text),
        sa.Column("snapshot", sa.BigInteger),
        sa.Column("run_id", sa.Text),
        sa.Column("moved_at", moment, nullable=False),
        sa.CheckConstraint(OF_TENANT, name="tidemark_marks_tenant"),
    )
    op.create_table(
        "tidemark_mark_values",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("field", sa.Text),
        sa.Column("value", sa.Text, nullable=False),
        sa.CheckConstraint(OF_TENANT, name="tidemark_mark_values_tenant"),
    )
    op.create_table(
        "tidemark_mark_audit",
        sa.Column("id", big_number, primary_key=True, autoincrement=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("from_version", sa.BigInteger),
        sa.Column("to_version", sa.BigInteger, nullable=False),
        sa.Column("restored_version", sa.BigInteger),
        sa.Column("snapshot", sa.BigInteger),
        sa.Column("run_id", sa.Text),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", moment, nullable=False),
        sa.CheckConstraint(OF_TENANT, name="tidemark_mark_audit_tenant"),
        sa.CheckConstraint(sa.column("kind").in_(MOVES), name="tidemark_mark_audit_kind"),
        sa.UniqueConstraint("subject", "to_version", name="tidemark_mark_audit_one_move_a_version"),
    )


# --- the rows ----------------------------------------------------------------------------------------------------------


def _name_subjects() -> None:
    """A table of old names and addresses; those of the ledger as `<system>/<subject>`, as marks and leases were called."""
    op.create_table(
        "tidemark_addresses_0002",
        sa.Column("old", sa.Text, primary_key=True),
        sa.Column("address", sa.Text, nullable=False),
        prefixes=["TEMPORARY"],
    )
    bind = op.get_bind()
    known = "SELECT DISTINCT system || '/' || subject FROM tidemark_runs_0002"
    known += " UNION SELECT subject FROM tidemark_marks_0002 UNION SELECT subject FROM tidemark_leases"
    names = _connection_names(bind)
    taken: set[str] = set()
    found = sorted(bind.execute(sa.text(known)).scalars())
    for old in sorted(found, key=lambda old: old.removeprefix("catalog/") not in names):  # names of connections first
        address = _address(old, names)
        while address in taken:  # a connection is called like another's app and id
            address += "_"
        taken.add(address)
        bind.execute(
            sa.text("INSERT INTO tidemark_addresses_0002 VALUES (:old, :address)"), {"old": old, "address": address}
        )


def _address(old: str, connections: dict[str, str]) -> str:
    system, _, name = old.partition("/")
    if system == "catalog":
        return f"catalog/{connections.get(name) or name.replace('/', '_')}"
    return f"{'stream' if system == 'connectors' else 'model' if system == 'models' else system}/{name}"


def _connection_names(bind: sa.Connection) -> dict[str, str]:
    """By a catalogue's old subject, the connection that its newest run names."""
    newest = "SELECT max(number) FROM tidemark_runs_0002 WHERE system = 'catalog' GROUP BY subject"
    rows = bind.execute(
        sa.text(f"SELECT subject, detail FROM tidemark_runs_0002 WHERE number IN ({newest}) ORDER BY number DESC")
    )
    names: dict[str, str] = {}
    for subject, detail in rows:
        told = json.loads(detail) if isinstance(detail, str) else detail
        name = told.get("connection") if isinstance(told, dict) else None
        if isinstance(name, str) and name and name not in names.values():
            names[subject] = name
    return names


def _copy_runs() -> None:
    kept = "run_id, started_at, finished_at, base_snapshot, snapshot, marker, detail"
    columns = ", ".join(f"r.{name.strip()}" for name in kept.split(","))
    op.get_bind().execute(
        sa.text(
            f"INSERT INTO tidemark_runs (number, {kept}, subject, status, mode, reason, error) "
            f"SELECT r.number, {columns}, a.address, "
            "CASE r.status WHEN 'rolled-back' THEN 'published' ELSE r.status END, "
            "CASE r.status WHEN 'rolled-back' THEN 'rollback' ELSE r.mode END, r.reason, "
            "CASE r.status WHEN 'abandoned' THEN coalesce(r.error, :abandoned) ELSE r.error END "
            "FROM tidemark_runs_0002 r JOIN tidemark_addresses_0002 a ON a.old = r.system || '/' || r.subject"
        ),
        {"abandoned": ABANDONED},
    )


def _copy_marks() -> None:
    bind, reset = op.get_bind(), {"reset": MODEL_RESET}
    of_stream = "'stream/' || s.tenant_id || '/' || s.connector_id || '/' || s.stream_id, s.tenant_id"
    bind.execute(
        sa.text(
            "INSERT INTO tidemark_marks (subject, tenant, version, has_value, field, snapshot, run_id, moved_at) "
            "SELECT a.address, '', m.version, m.value <> :reset, NULL, m.snapshot, m.run_id, m.moved_at "
            "FROM tidemark_marks_0002 m JOIN tidemark_addresses_0002 a ON a.old = m.subject UNION ALL "
            f"SELECT {of_stream}, s.version, s.cursor_field IS NOT NULL, s.cursor_field, NULL, s.run_id, s.updated_at "
            "FROM tidemark_stream_state_0002 s"
        ),
        reset,
    )
    bind.execute(
        sa.text(
            "INSERT INTO tidemark_mark_values (subject, tenant, version, field, value) "
            "SELECT a.address, '', m.to_version, NULL, m.value "
            "FROM tidemark_mark_audit_0002 m JOIN tidemark_addresses_0002 a ON a.old = m.subject "
            "WHERE m.value <> :reset UNION ALL "
            "SELECT a.address, '', m.version, NULL, m.value "  # of a mark without an audit row, if there is one
            "FROM tidemark_marks_0002 m JOIN tidemark_addresses_0002 a ON a.old = m.subject "
            "WHERE m.value <> :reset AND NOT EXISTS (SELECT 1 FROM tidemark_mark_audit_0002 u "
            "WHERE u.subject = m.subject AND u.to_version = m.version) UNION ALL "
            f"SELECT {of_stream}, s.version, s.cursor_field, s.sealed FROM tidemark_stream_value_0002 s"
        ),
        reset,
    )
    bind.execute(
        sa.text(
            "INSERT INTO tidemark_mark_audit (subject, tenant, kind, from_version, to_version, restored_version, "
            "snapshot, run_id, actor, reason, at) SELECT * FROM ("
            "SELECT a.address, '' AS tenant, CASE WHEN m.value = :reset THEN 'reset' "
            "WHEN m.run_id IS NULL AND m.reason = 'rewound by hand' THEN 'rewind' ELSE 'commit' END AS kind, "
            "m.from_version, m.to_version, NULL AS restored_version, m.snapshot, m.run_id, m.actor, m.reason, m.at "
            "FROM tidemark_mark_audit_0002 m JOIN tidemark_addresses_0002 a ON a.old = m.subject UNION ALL "
            f"SELECT {of_stream}, s.kind, s.from_version, s.to_version, s.restored_version, NULL, s.run_id, s.actor, "
            "s.reason, s.at FROM tidemark_stream_audit_0002 s) AS moves ORDER BY at, to_version"
        ),
        reset,
    )


def _copy_leases() -> None:
    """A subject whose lease is held stays held, under its address."""
    op.execute(
        "UPDATE tidemark_leases SET subject = (SELECT a.address FROM tidemark_addresses_0002 a "
        "WHERE a.old = tidemark_leases.subject)"
    )
    op.drop_table("tidemark_addresses_0002")


def _count_on() -> None:
    for table, column in (("tidemark_runs", "number"), ("tidemark_mark_audit", "id")):
        op.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), "
            f"(SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
        )


# --- guards ------------------------------------------------------------------------------------------------------------


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
    op.execute("DROP FUNCTION tidemark_refuse_stream_change()")
    op.execute(
        "CREATE TRIGGER tidemark_mark_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tidemark_mark_audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION tidemark_refuse_change()"
    )


def _keep_tenants_apart() -> None:
    """Row-level security is forced on the owner too; a later migration takes the force off while it changes rows."""
    # A setting that was local to an earlier transaction reads as '' afterwards, and '' is no tenant.
    allowed = "tenant = '' OR tenant = NULLIF(current_setting('tidemark.tenant', true), '')"
    for table in MARKS:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY {table}_of_tenant ON {table} USING ({allowed}) WITH CHECK ({allowed})")
