"""Kinds of DDL, and what the catalogue must say after each: the same list serves the packs and the whole runs.

A case names only the tables whose label is not NO CHANGE. The default schema is written `main`, also for PostgreSQL.
SQL or labels that differ between the apps are given by app.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POSTGRESQL, SQLITE, DUCKDB = "postgresql", "sqlite", "duckdb"
ALL = (POSTGRESQL, SQLITE, DUCKDB)
P, S, D = (POSTGRESQL,), (SQLITE,), (DUCKDB,)
PS, PD = (POSTGRESQL, SQLITE), (POSTGRESQL, DUCKDB)

CREATED, UPDATED, REMOVED = "CREATED", "UPDATED", "REMOVED"

# They are there in every case and never change.
BYSTANDERS = (
    "CREATE TABLE bystander (id integer PRIMARY KEY, note varchar(20) DEFAULT 'x')",
    "CREATE TABLE other_bystander (id integer, amount decimal(10, 2))",
    "CREATE VIEW bystander_view AS SELECT id, note FROM bystander",
)

Script = tuple[str, ...] | Mapping[str, tuple[str, ...]]
Labels = Mapping[str, str] | Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class DdlCase:
    name: str
    apps: tuple[str, ...]
    setup: Script
    change: Script
    labels: Labels

    def setup_for(self, app: str) -> tuple[str, ...]:
        return BYSTANDERS + tuple(_of_app(self.setup, app))

    def change_for(self, app: str) -> tuple[str, ...]:
        return tuple(_of_app(self.change, app))

    def labels_for(self, app: str) -> dict[str, str]:
        """Labels by `schema.table`, with the app's own default schema."""
        default = "public." if app == POSTGRESQL else "main."
        return {
            default + name.removeprefix("main.") if name.startswith("main.") else name: label
            for name, label in _of_app(self.labels, app).items()
        }


def _of_app(value: Any, app: str) -> Any:
    return value[app] if isinstance(value, Mapping) and value and set(value) <= set(ALL) else value


NOTE = ("CREATE TABLE note (id integer, body varchar(20), amount integer)",)
NOTE_UPDATED = {"main.note": UPDATED}
NOTHING: dict[str, str] = {}

WEIRD = '"a.b/c ""d"" 表 é 🚀 %"'
WEIRD_NAME = 'main.a.b/c "d" 表 é 🚀 %'
MANY = 1600


def _wide(count: int) -> str:
    return f"CREATE TABLE wide ({', '.join(f'c{n} integer' for n in range(count))})"


COLUMN_CASES = (
    DdlCase("a column is added", ALL, NOTE, ("ALTER TABLE note ADD COLUMN extra integer",), NOTE_UPDATED),
    DdlCase(
        "a column with a default is added",
        ALL,
        NOTE,
        ("ALTER TABLE note ADD COLUMN extra integer DEFAULT 7",),
        NOTE_UPDATED,
    ),
    DdlCase("the last column is dropped", ALL, NOTE, ("ALTER TABLE note DROP COLUMN amount",), NOTE_UPDATED),
    DdlCase("a column in the middle is dropped", ALL, NOTE, ("ALTER TABLE note DROP COLUMN body",), NOTE_UPDATED),
    DdlCase(
        "the last column is dropped and added again",
        ALL,
        NOTE,
        ("ALTER TABLE note DROP COLUMN amount", "ALTER TABLE note ADD COLUMN amount integer"),
        # PostgreSQL gives the new column a new place.
        {POSTGRESQL: NOTE_UPDATED, SQLITE: NOTHING, DUCKDB: NOTHING},
    ),
    DdlCase("a column is renamed", ALL, NOTE, ("ALTER TABLE note RENAME COLUMN body TO text",), NOTE_UPDATED),
    DdlCase("a column is renamed in case only", ALL, NOTE, ('ALTER TABLE note RENAME COLUMN body TO "Body"',), NOTE_UPDATED),
    DdlCase(
        "two columns of one type swap their names",
        ALL,
        ("CREATE TABLE note (a integer, b integer)",),
        (
            "ALTER TABLE note RENAME COLUMN a TO c",
            "ALTER TABLE note RENAME COLUMN b TO a",
            "ALTER TABLE note RENAME COLUMN c TO b",
        ),
        # The same columns in another order: a, b became b, a.
        NOTE_UPDATED,
    ),
    DdlCase(
        "a column is renamed there and back",
        ALL,
        NOTE,
        ("ALTER TABLE note RENAME COLUMN body TO text", "ALTER TABLE note RENAME COLUMN text TO body"),
        NOTHING,
    ),
    DdlCase("a type is widened", P, NOTE, ("ALTER TABLE note ALTER COLUMN body TYPE varchar(200)",), NOTE_UPDATED),
    DdlCase("a type is replaced", PD, NOTE, ("ALTER TABLE note ALTER COLUMN amount TYPE bigint",), NOTE_UPDATED),
    DdlCase(
        "a precision and a scale are changed",
        PD,
        ("CREATE TABLE note (amount decimal(10, 2))",),
        ("ALTER TABLE note ALTER COLUMN amount TYPE decimal(12, 4)",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a scale becomes negative",
        P,
        ("CREATE TABLE note (amount numeric(5, 2))",),
        ("ALTER TABLE note ALTER COLUMN amount TYPE numeric(5, -2)",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "the precision of a time is changed",
        P,
        ("CREATE TABLE note (at timestamptz(3))",),
        ("ALTER TABLE note ALTER COLUMN at TYPE timestamptz(6)",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a column becomes an array",
        P,
        NOTE,
        ("ALTER TABLE note ALTER COLUMN amount TYPE integer[] USING ARRAY[amount]",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a field is added to a struct",
        D,
        ("CREATE TABLE note (s STRUCT(a integer))",),
        ("ALTER TABLE note ADD COLUMN s.b integer",),
        NOTE_UPDATED,
    ),
    DdlCase("a default is set", PD, NOTE, ("ALTER TABLE note ALTER COLUMN amount SET DEFAULT 1",), NOTE_UPDATED),
    DdlCase(
        "a default is changed",
        PD,
        ("CREATE TABLE note (amount integer DEFAULT 1)",),
        ("ALTER TABLE note ALTER COLUMN amount SET DEFAULT 2",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a default is dropped",
        PD,
        ("CREATE TABLE note (amount integer DEFAULT 1)",),
        ("ALTER TABLE note ALTER COLUMN amount DROP DEFAULT",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "an empty default takes the place of none",
        PD,
        NOTE,
        ("ALTER TABLE note ALTER COLUMN body SET DEFAULT ''",),
        NOTE_UPDATED,
    ),
    DdlCase("NOT NULL is set", PD, NOTE, ("ALTER TABLE note ALTER COLUMN id SET NOT NULL",), NOTE_UPDATED),
    DdlCase(
        "NOT NULL is dropped",
        PD,
        ("CREATE TABLE note (id integer NOT NULL)",),
        ("ALTER TABLE note ALTER COLUMN id DROP NOT NULL",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a column becomes an identity",
        P,
        ("CREATE TABLE note (id integer NOT NULL)",),
        ("ALTER TABLE note ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "an identity is relaxed",
        P,
        ("CREATE TABLE note (id integer GENERATED ALWAYS AS IDENTITY)",),
        ("ALTER TABLE note ALTER COLUMN id SET GENERATED BY DEFAULT",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a generated column is added",
        PS,
        NOTE,
        {
            POSTGRESQL: ("ALTER TABLE note ADD COLUMN twice integer GENERATED ALWAYS AS (amount * 2) STORED",),
            SQLITE: ("ALTER TABLE note ADD COLUMN twice integer GENERATED ALWAYS AS (amount * 2) VIRTUAL",),
        },
        NOTE_UPDATED,
    ),
    DdlCase(
        "the expression of a generated column is changed",
        P,
        ("CREATE TABLE note (a integer, b integer GENERATED ALWAYS AS (a * 2) STORED)",),
        ("ALTER TABLE note ALTER COLUMN b SET EXPRESSION AS (a * 3)",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a table without columns gets its first",
        P,
        ("CREATE TABLE note ()",),
        ("ALTER TABLE note ADD COLUMN id integer",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a table loses its only column",
        P,
        ("CREATE TABLE note (id integer)",),
        ("ALTER TABLE note DROP COLUMN id",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "one of 1,600 columns is renamed",
        ALL,
        (_wide(MANY),),
        ("ALTER TABLE wide RENAME COLUMN c1000 TO renamed",),
        {"main.wide": UPDATED},
    ),
    DdlCase(
        "one of 1,600 columns gets a comment",
        PD,
        (_wide(MANY),),
        ("COMMENT ON COLUMN wide.c1599 IS 'last'",),
        {"main.wide": UPDATED},
    ),
)

COMMENTED = (*NOTE, "COMMENT ON TABLE note IS 'old'", "COMMENT ON COLUMN note.body IS 'old'")

COMMENT_CASES = (
    DdlCase("a table gets a comment", PD, NOTE, ("COMMENT ON TABLE note IS 'new'",), NOTE_UPDATED),
    DdlCase("a table's comment is changed", PD, COMMENTED, ("COMMENT ON TABLE note IS 'new'",), NOTE_UPDATED),
    DdlCase("a table's comment is removed", PD, COMMENTED, ("COMMENT ON TABLE note IS NULL",), NOTE_UPDATED),
    DdlCase("a table's comment is set to what it was", PD, COMMENTED, ("COMMENT ON TABLE note IS 'old'",), NOTHING),
    DdlCase("a column gets a comment", PD, NOTE, ("COMMENT ON COLUMN note.body IS 'new'",), NOTE_UPDATED),
    DdlCase("a column's comment is changed", PD, COMMENTED, ("COMMENT ON COLUMN note.body IS 'new'",), NOTE_UPDATED),
    DdlCase("a column's comment is removed", PD, COMMENTED, ("COMMENT ON COLUMN note.body IS NULL",), NOTE_UPDATED),
    DdlCase(
        "a comment moves from one column to another",
        PD,
        COMMENTED,
        ("COMMENT ON COLUMN note.body IS NULL", "COMMENT ON COLUMN note.amount IS 'old'"),
        NOTE_UPDATED,
    ),
    DdlCase(
        "an empty comment is set",
        PD,
        NOTE,
        ("COMMENT ON TABLE note IS ''",),
        # To PostgreSQL that is no comment.
        {POSTGRESQL: NOTHING, DUCKDB: NOTE_UPDATED},
    ),
    DdlCase(
        "a view gets a comment",
        PD,
        ("CREATE VIEW seen AS SELECT 1 AS a",),
        ("COMMENT ON VIEW seen IS 'new'",),
        {"main.seen": UPDATED},
    ),
    DdlCase(
        "a schema and a database get comments",
        P,
        NOTE,
        (
            "COMMENT ON SCHEMA public IS 'ours'",
            "DO $$BEGIN EXECUTE format('COMMENT ON DATABASE %I IS ''ours''', current_database()); END$$",
        ),
        NOTHING,
    ),
    DdlCase(
        "an index and a constraint get comments",
        P,
        ("CREATE TABLE note (id integer CONSTRAINT positive CHECK (id > 0))", "CREATE INDEX note_id ON note (id)"),
        ("COMMENT ON INDEX note_id IS 'new'", "COMMENT ON CONSTRAINT positive ON note IS 'new'"),
        NOTHING,
    ),
)

TABLE_CASES = (
    DdlCase("a table is created", ALL, (), NOTE, {"main.note": CREATED}),
    DdlCase("a table is created from a query", ALL, (), ("CREATE TABLE note AS SELECT 1 AS a",), {"main.note": CREATED}),
    DdlCase("a table without columns is created", P, (), ("CREATE TABLE note ()",), {"main.note": CREATED}),
    DdlCase("a table with 1,600 columns is created", ALL, (), (_wide(MANY),), {"main.wide": CREATED}),
    DdlCase("a table is dropped", ALL, NOTE, ("DROP TABLE note",), {"main.note": REMOVED}),
    DdlCase(
        "a table is renamed",
        ALL,
        NOTE,
        ("ALTER TABLE note RENAME TO memo",),
        {"main.note": REMOVED, "main.memo": CREATED},
    ),
    DdlCase(
        "a table is renamed in case only",
        ALL,
        NOTE,
        {
            POSTGRESQL: ('ALTER TABLE note RENAME TO "Note"',),
            SQLITE: ("ALTER TABLE note RENAME TO memo", 'ALTER TABLE memo RENAME TO "Note"'),
            DUCKDB: ("ALTER TABLE note RENAME TO memo", 'ALTER TABLE memo RENAME TO "Note"'),
        },
        {"main.note": REMOVED, "main.Note": CREATED},
    ),
    DdlCase(
        "one of two tables whose names differ only in case is changed",
        P,
        (*NOTE, 'CREATE TABLE "Note" (id integer)', 'CREATE TABLE "NOTE" (id integer)'),
        ('ALTER TABLE "Note" ADD COLUMN extra integer',),
        {"main.Note": UPDATED},
    ),
    DdlCase(
        "two tables swap their names",
        ALL,
        (*NOTE, "CREATE TABLE memo (id integer)"),
        (
            "ALTER TABLE note RENAME TO third",
            "ALTER TABLE memo RENAME TO note",
            "ALTER TABLE third RENAME TO memo",
        ),
        {"main.note": UPDATED, "main.memo": UPDATED},
    ),
    DdlCase(
        "a table is dropped and created again as it was",
        ALL,
        NOTE,
        ("DROP TABLE note", *NOTE),
        # Only PostgreSQL has an id that tells the two apart.
        {POSTGRESQL: NOTE_UPDATED, SQLITE: NOTHING, DUCKDB: NOTHING},
    ),
    DdlCase(
        "a table is dropped and created again with other columns",
        ALL,
        NOTE,
        ("DROP TABLE note", "CREATE TABLE note (id integer)"),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a table is rebuilt beside itself with another type",
        ALL,
        NOTE,
        (
            "CREATE TABLE rebuilt (id bigint, body varchar(20), amount integer)",
            "INSERT INTO rebuilt SELECT * FROM note",
            "DROP TABLE note",
            "ALTER TABLE rebuilt RENAME TO note",
        ),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a table gives way to a view of its name",
        ALL,
        NOTE,
        ("DROP TABLE note", "CREATE VIEW note AS SELECT id, note AS body, 1 AS amount FROM bystander"),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a table with a name full of signs is created",
        ALL,
        (),
        (f"CREATE TABLE {WEIRD} ({WEIRD} integer)",),
        {WEIRD_NAME: CREATED},
    ),
    DdlCase(
        "a column is added to a table with a name full of signs",
        ALL,
        (f"CREATE TABLE {WEIRD} (id integer)",),
        (f"ALTER TABLE {WEIRD} ADD COLUMN {WEIRD} integer",),
        {WEIRD_NAME: UPDATED},
    ),
    DdlCase(
        "a table with a name full of signs is dropped",
        ALL,
        (f"CREATE TABLE {WEIRD} (id integer)",),
        (f"DROP TABLE {WEIRD}",),
        {WEIRD_NAME: REMOVED},
    ),
    DdlCase(
        "a foreign table gets a column",
        P,
        (
            "CREATE FOREIGN DATA WRAPPER nowhere",
            "CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere",
            "CREATE FOREIGN TABLE far (id integer) SERVER nowhere",
        ),
        ("ALTER FOREIGN TABLE far ADD COLUMN extra integer",),
        {"main.far": UPDATED},
    ),
    DdlCase(
        "a parent by inheritance gets a column",
        P,
        (*NOTE, "CREATE TABLE child (own integer) INHERITS (note)"),
        ("ALTER TABLE note ADD COLUMN extra integer",),
        {"main.note": UPDATED, "main.child": UPDATED},
    ),
)

VIEW = (*NOTE, "CREATE VIEW seen AS SELECT id, body FROM note")
STAR = (*NOTE, "CREATE VIEW seen AS SELECT * FROM note")
SEEN_UPDATED = {"main.seen": UPDATED}
BOTH_UPDATED = {"main.note": UPDATED, "main.seen": UPDATED}

VIEW_CASES = (
    DdlCase("a view is created", ALL, NOTE, ("CREATE VIEW seen AS SELECT id FROM note",), {"main.seen": CREATED}),
    DdlCase("a view is dropped", ALL, VIEW, ("DROP VIEW seen",), {"main.seen": REMOVED}),
    DdlCase(
        "a view is renamed",
        PD,
        VIEW,
        ("ALTER VIEW seen RENAME TO looked_at",),
        {"main.seen": REMOVED, "main.looked_at": CREATED},
    ),
    DdlCase(
        "a view gets another condition and keeps its columns",
        ALL,
        VIEW,
        {
            POSTGRESQL: ("CREATE OR REPLACE VIEW seen AS SELECT id, body FROM note WHERE id > 1",),
            SQLITE: ("DROP VIEW seen", "CREATE VIEW seen AS SELECT id, body FROM note WHERE id > 1"),
            DUCKDB: ("CREATE OR REPLACE VIEW seen AS SELECT id, body FROM note WHERE id > 1",),
        },
        SEEN_UPDATED,
    ),
    DdlCase(
        "a view shows its columns in another order",
        ALL,
        VIEW,
        ("DROP VIEW seen", "CREATE VIEW seen AS SELECT body, id FROM note"),
        SEEN_UPDATED,
    ),
    DdlCase(
        "a column of a view gets a default",
        P,
        VIEW,
        ("ALTER VIEW seen ALTER COLUMN body SET DEFAULT 'x'",),
        SEEN_UPDATED,
    ),
    DdlCase(
        "a column is added under a view of all columns",
        ALL,
        STAR,
        ("ALTER TABLE note ADD COLUMN extra integer",),
        # Only SQLite reads the star anew.
        {POSTGRESQL: NOTE_UPDATED, SQLITE: BOTH_UPDATED, DUCKDB: NOTE_UPDATED},
    ),
    DdlCase(
        "a column is renamed under a view",
        ALL,
        VIEW,
        ("ALTER TABLE note RENAME COLUMN body TO text",),
        # PostgreSQL and SQLite write the new name into the view; DuckDB leaves the view as it was made.
        {POSTGRESQL: BOTH_UPDATED, SQLITE: BOTH_UPDATED, DUCKDB: NOTE_UPDATED},
    ),
    DdlCase(
        "a type is changed under a view",
        D,
        VIEW,
        ("ALTER TABLE note ALTER COLUMN id TYPE bigint",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a table is renamed under a view",
        ALL,
        VIEW,
        ("ALTER TABLE note RENAME TO memo",),
        {
            POSTGRESQL: {"main.note": REMOVED, "main.memo": CREATED, "main.seen": UPDATED},
            SQLITE: {"main.note": REMOVED, "main.memo": CREATED, "main.seen": UPDATED},
            DUCKDB: {"main.note": REMOVED, "main.memo": CREATED},
        },
    ),
    DdlCase(
        "a table is dropped under a view",
        ALL,
        VIEW,
        {POSTGRESQL: ("DROP TABLE note CASCADE",), SQLITE: ("DROP TABLE note",), DUCKDB: ("DROP TABLE note",)},
        # SQLite's view has no columns any more; DuckDB's keeps those it was made with.
        {
            POSTGRESQL: {"main.note": REMOVED, "main.seen": REMOVED},
            SQLITE: {"main.note": REMOVED, "main.seen": UPDATED},
            DUCKDB: {"main.note": REMOVED},
        },
    ),
    DdlCase(
        "the table under a broken view comes back",
        S,
        (*VIEW, "DROP TABLE note"),
        NOTE,
        {"main.note": CREATED, "main.seen": UPDATED},
    ),
    DdlCase(
        "a materialized view is created",
        P,
        NOTE,
        ("CREATE MATERIALIZED VIEW kept AS SELECT id FROM note",),
        {"main.kept": CREATED},
    ),
    DdlCase(
        "a materialized view is made anew with another column",
        P,
        (*NOTE, "CREATE MATERIALIZED VIEW kept AS SELECT id FROM note"),
        ("DROP MATERIALIZED VIEW kept", "CREATE MATERIALIZED VIEW kept AS SELECT id, body FROM note"),
        {"main.kept": UPDATED},
    ),
    DdlCase(
        "a materialized view is refreshed and indexed",
        P,
        (*NOTE, "CREATE MATERIALIZED VIEW kept AS SELECT id FROM note"),
        ("INSERT INTO note VALUES (1, 'a', 1)", "REFRESH MATERIALIZED VIEW kept", "CREATE INDEX ON kept (id)"),
        NOTHING,
    ),
)

PARENT = "CREATE TABLE parent (id integer PRIMARY KEY, code integer UNIQUE)"
CHILD = (PARENT, "CREATE TABLE child (id integer, parent_id integer REFERENCES parent (id))")
LOOSE_CHILD = (PARENT, "CREATE TABLE child (id integer, parent_id integer)")
CHILD_UPDATED = {"main.child": UPDATED}

KEY_CASES = (
    DdlCase("a primary key is added", PD, NOTE, ("ALTER TABLE note ADD PRIMARY KEY (id)",), NOTE_UPDATED),
    DdlCase(
        "a primary key is dropped",
        P,
        ("CREATE TABLE note (id integer NOT NULL, CONSTRAINT note_key PRIMARY KEY (id))",),
        ("ALTER TABLE note DROP CONSTRAINT note_key",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "the columns of a primary key change places",
        P,
        ("CREATE TABLE note (a integer, b integer, CONSTRAINT note_key PRIMARY KEY (a, b))",),
        ("ALTER TABLE note DROP CONSTRAINT note_key, ADD CONSTRAINT note_key PRIMARY KEY (b, a)",),
        NOTE_UPDATED,
    ),
    DdlCase("a table with a foreign key is created", ALL, (PARENT,), CHILD[1:], {"main.child": CREATED}),
    DdlCase("a table with a foreign key is dropped", ALL, CHILD, ("DROP TABLE child",), {"main.child": REMOVED}),
    DdlCase(
        "a foreign key is added",
        P,
        LOOSE_CHILD,
        ("ALTER TABLE child ADD FOREIGN KEY (parent_id) REFERENCES parent",),
        CHILD_UPDATED,
    ),
    DdlCase(
        "a column that is a foreign key is added",
        PS,
        CHILD,
        ("ALTER TABLE child ADD COLUMN code integer REFERENCES parent (code)",),
        CHILD_UPDATED,
    ),
    DdlCase(
        "a foreign key is dropped",
        P,
        CHILD,
        ("ALTER TABLE child DROP CONSTRAINT child_parent_id_fkey",),
        CHILD_UPDATED,
    ),
    DdlCase(
        "a second foreign key on the same column is added",
        P,
        (*CHILD, "CREATE TABLE guardian (id integer PRIMARY KEY)"),
        ("ALTER TABLE child ADD FOREIGN KEY (parent_id) REFERENCES guardian",),
        CHILD_UPDATED,
    ),
    DdlCase(
        "a foreign key of two columns is added",
        P,
        ("CREATE TABLE parent (a integer, b integer, PRIMARY KEY (b, a))", "CREATE TABLE child (x integer, y integer)"),
        ("ALTER TABLE child ADD FOREIGN KEY (x, y) REFERENCES parent (b, a)",),
        CHILD_UPDATED,
    ),
    DdlCase(
        "the table a foreign key points to is renamed",
        PS,
        CHILD,
        ("ALTER TABLE parent RENAME TO mother",),
        {"main.parent": REMOVED, "main.mother": CREATED, "main.child": UPDATED},
    ),
    DdlCase(
        "the column a foreign key points to is renamed",
        PS,
        CHILD,
        ("ALTER TABLE parent RENAME COLUMN id TO number",),
        {"main.parent": UPDATED, "main.child": UPDATED},
    ),
    DdlCase(
        "the schema a foreign key points to is renamed",
        P,
        (
            "CREATE SCHEMA far",
            "CREATE TABLE far.parent (id integer PRIMARY KEY)",
            "CREATE TABLE child (parent_id integer REFERENCES far.parent)",
        ),
        ("ALTER SCHEMA far RENAME TO near",),
        {"far.parent": REMOVED, "near.parent": CREATED, "main.child": UPDATED},
    ),
    DdlCase(
        "the primary key that a foreign key means without naming it moves",
        S,
        (
            "CREATE TABLE parent (a integer PRIMARY KEY, b integer)",
            "CREATE TABLE child (parent_id integer REFERENCES parent)",
        ),
        ("DROP TABLE parent", "CREATE TABLE parent (a integer, b integer PRIMARY KEY)"),
        {"main.parent": UPDATED, "main.child": UPDATED},
    ),
    DdlCase("a unique constraint is added", P, NOTE, ("ALTER TABLE note ADD UNIQUE (id)",), NOTHING),
    DdlCase("a check constraint is added", P, NOTE, ("ALTER TABLE note ADD CHECK (amount > 0)",), NOTHING),
)

MOOD = ("CREATE TYPE mood AS ENUM ('sad', 'glad')", "CREATE TABLE note (mood mood)")
PARTED = (
    "CREATE TABLE note (id integer NOT NULL, day integer NOT NULL) PARTITION BY RANGE (day)",
    "CREATE TABLE note_1 PARTITION OF note FOR VALUES FROM (1) TO (2)",
)

DOMAIN = ("CREATE DOMAIN code AS varchar(10)", "CREATE TABLE note (id code)")
NOTE_2 = "CREATE TABLE note_2 (id integer NOT NULL, day integer NOT NULL)"
BOTH_PARTS = {"main.note": UPDATED, "main.note_2": UPDATED}

TYPE_CASES = (
    DdlCase("an enum gets a value", P, MOOD, ("ALTER TYPE mood ADD VALUE 'mad'",), NOTHING),
    DdlCase(
        "an enum that is written out in the column gets a value",
        D,
        ("CREATE TABLE note (mood ENUM ('sad', 'glad'))",),
        ("ALTER TABLE note ALTER COLUMN mood TYPE ENUM ('sad', 'glad', 'mad')",),
        NOTE_UPDATED,
    ),
    DdlCase("an enum is renamed", P, MOOD, ("ALTER TYPE mood RENAME TO feeling",), NOTE_UPDATED),
    DdlCase(
        "a type moves to another schema",
        P,
        MOOD,
        ("CREATE SCHEMA types", "ALTER TYPE mood SET SCHEMA types"),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a domain gets a constraint",
        P,
        ("CREATE DOMAIN positive AS integer", "CREATE TABLE note (id positive)"),
        ("ALTER DOMAIN positive ADD CHECK (VALUE > 0)",),
        NOTHING,
    ),
    DdlCase(
        "a domain is renamed",
        P,
        ("CREATE DOMAIN positive AS integer", "CREATE TABLE note (id positive)"),
        ("ALTER DOMAIN positive RENAME TO counted",),
        NOTE_UPDATED,
    ),
    DdlCase("a domain becomes NOT NULL", P, DOMAIN, ("ALTER DOMAIN code SET NOT NULL",), NOTE_UPDATED),
    DdlCase(
        "a domain is no longer NOT NULL",
        P,
        ("CREATE DOMAIN code AS varchar(10) NOT NULL", "CREATE TABLE note (id code)"),
        ("ALTER DOMAIN code DROP NOT NULL",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "the domain below a domain becomes NOT NULL",
        P,
        ("CREATE DOMAIN code AS varchar(10)", "CREATE DOMAIN country AS code", "CREATE TABLE note (id country)"),
        ("ALTER DOMAIN code SET NOT NULL",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "a domain becomes NOT NULL whose column is so already",
        P,
        ("CREATE DOMAIN code AS varchar(10)", "CREATE TABLE note (id code NOT NULL)"),
        ("ALTER DOMAIN code SET NOT NULL",),
        NOTHING,
    ),
    DdlCase(
        "a column gets a domain of another length",
        P,
        (*DOMAIN, "CREATE DOMAIN text_code AS varchar(20)"),
        ("ALTER TABLE note ALTER COLUMN id TYPE text_code",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "the sequence in a default is renamed",
        P,
        ("CREATE TABLE note (id serial)",),
        ("ALTER SEQUENCE note_id_seq RENAME TO numbers",),
        NOTE_UPDATED,
    ),
    DdlCase(
        "the function in a default is renamed",
        P,
        (
            "CREATE FUNCTION seven() RETURNS integer LANGUAGE sql AS 'SELECT 7'",
            "CREATE TABLE note (id integer DEFAULT seven())",
        ),
        ("ALTER FUNCTION seven() RENAME TO lucky",),
        NOTE_UPDATED,
    ),
    # A partitioned table counts its partitions, so it changes with each of them.
    DdlCase(
        "a partition is created",
        P,
        PARTED,
        ("CREATE TABLE note_2 PARTITION OF note FOR VALUES FROM (2) TO (3)",),
        {"main.note": UPDATED, "main.note_2": CREATED},
    ),
    DdlCase(
        "a partition is dropped",
        P,
        PARTED,
        ("DROP TABLE note_1",),
        {"main.note": UPDATED, "main.note_1": REMOVED},
    ),
    DdlCase(
        "a partition is detached",
        P,
        PARTED,
        ("ALTER TABLE note DETACH PARTITION note_1",),
        {"main.note": UPDATED, "main.note_1": UPDATED},
    ),
    DdlCase(
        "a partition is detached without a lock",
        P,
        PARTED,
        ("ALTER TABLE note DETACH PARTITION note_1 CONCURRENTLY",),
        {"main.note": UPDATED, "main.note_1": UPDATED},
    ),
    DdlCase(
        "a partition is attached",
        P,
        (*PARTED, NOTE_2),
        ("ALTER TABLE note ATTACH PARTITION note_2 FOR VALUES FROM (2) TO (3)",),
        BOTH_PARTS,
    ),
    DdlCase(
        "a default partition is attached",
        P,
        (*PARTED, NOTE_2),
        ("ALTER TABLE note ATTACH PARTITION note_2 DEFAULT",),
        BOTH_PARTS,
    ),
    DdlCase(
        "a partition is attached again with another bound",
        P,
        PARTED,
        (
            "ALTER TABLE note DETACH PARTITION note_1",
            "ALTER TABLE note ATTACH PARTITION note_1 FOR VALUES FROM (1) TO (3)",
        ),
        {"main.note_1": UPDATED},
    ),
    DdlCase(
        "a partition is detached and attached as it was",
        P,
        PARTED,
        (
            "ALTER TABLE note DETACH PARTITION note_1",
            "ALTER TABLE note ATTACH PARTITION note_1 FOR VALUES FROM (1) TO (2)",
        ),
        NOTHING,
    ),
    DdlCase(
        "a partition gets partitions of its own",
        P,
        (*PARTED, "CREATE TABLE note_2 PARTITION OF note FOR VALUES FROM (2) TO (3) PARTITION BY LIST (id)"),
        ("CREATE TABLE note_2_1 PARTITION OF note_2 FOR VALUES IN (1)",),
        {"main.note_2": UPDATED, "main.note_2_1": CREATED},
    ),
    DdlCase(
        "a partitioned table is renamed",
        P,
        PARTED,
        ("ALTER TABLE note RENAME TO memo",),
        {"main.note": REMOVED, "main.memo": CREATED, "main.note_1": UPDATED},
    ),
    DdlCase(
        "a partitioned table is made again with another key",
        P,
        ("CREATE TABLE note (id integer, day integer) PARTITION BY RANGE (day)",),
        ("DROP TABLE note", "CREATE TABLE note (id integer, day integer) PARTITION BY HASH (id, day)"),
        NOTE_UPDATED,
    ),
    DdlCase(
        "the column of a partition key is renamed",
        P,
        PARTED,
        ("ALTER TABLE note RENAME COLUMN day TO date",),
        {"main.note": UPDATED, "main.note_1": UPDATED},
    ),
    DdlCase(
        "a table begins to inherit",
        P,
        (*NOTE, "CREATE TABLE child (id integer, body varchar(20), amount integer)"),
        ("ALTER TABLE child INHERIT note",),
        {"main.child": UPDATED},
    ),
    DdlCase(
        "a table no longer inherits",
        P,
        (*NOTE, "CREATE TABLE child () INHERITS (note)"),
        ("ALTER TABLE child NO INHERIT note",),
        {"main.child": UPDATED},
    ),
    DdlCase(
        "the table that others inherit from is renamed",
        P,
        (*NOTE, "CREATE TABLE child () INHERITS (note)"),
        ("ALTER TABLE note RENAME TO memo",),
        {"main.note": REMOVED, "main.memo": CREATED, "main.child": UPDATED},
    ),
    DdlCase(
        "a partition is attached and takes over the primary key",
        P,
        (*PARTED, "ALTER TABLE note ADD PRIMARY KEY (id, day)", NOTE_2),
        ("ALTER TABLE note ATTACH PARTITION note_2 FOR VALUES FROM (2) TO (3)",),
        BOTH_PARTS,
    ),
    DdlCase(
        "a partitioned table gets a column",
        P,
        PARTED,
        ("ALTER TABLE note ADD COLUMN extra integer",),
        {"main.note": UPDATED, "main.note_1": UPDATED},
    ),
    DdlCase(
        "a partitioned table that a foreign key points to gets a partition",
        P,
        (
            *PARTED,
            "ALTER TABLE note ADD PRIMARY KEY (id, day)",
            "CREATE TABLE child (note_id integer, day integer, FOREIGN KEY (note_id, day) REFERENCES note)",
        ),
        ("CREATE TABLE note_2 PARTITION OF note FOR VALUES FROM (2) TO (3)",),
        {"main.note": UPDATED, "main.note_2": CREATED},
    ),
)

FAR = ("CREATE SCHEMA far", "CREATE TABLE far.note (id integer)", "CREATE TABLE far.memo (id integer)")

SCHEMA_CASES = (
    DdlCase("an empty schema is created", PD, (), ("CREATE SCHEMA far",), NOTHING),
    DdlCase("a schema is created with tables", PD, (), FAR, {"far.note": CREATED, "far.memo": CREATED}),
    DdlCase(
        "a schema is dropped with its tables",
        PD,
        FAR,
        ("DROP SCHEMA far CASCADE",),
        {"far.note": REMOVED, "far.memo": REMOVED},
    ),
    DdlCase(
        "a schema is renamed",
        P,
        FAR,
        ("ALTER SCHEMA far RENAME TO near",),
        {"far.note": REMOVED, "far.memo": REMOVED, "near.note": CREATED, "near.memo": CREATED},
    ),
    DdlCase(
        "a table moves to another schema",
        P,
        (*FAR, "CREATE SCHEMA near"),
        ("ALTER TABLE far.note SET SCHEMA near",),
        {"far.note": REMOVED, "near.note": CREATED},
    ),
    DdlCase(
        "a table of another schema with the same name is changed",
        PD,
        (*NOTE, *FAR),
        ("ALTER TABLE far.note ADD COLUMN extra integer",),
        {"far.note": UPDATED},
    ),
    DdlCase(
        "a table in a schema with a dot in its name is created beside its double",
        PD,
        ('CREATE SCHEMA "a.b"', "CREATE SCHEMA a", 'CREATE TABLE a."b.c" (id integer)'),
        ('CREATE TABLE "a.b".d (id integer)', 'ALTER TABLE a."b.c" ADD COLUMN extra integer'),
        {"a.b.d": CREATED, "a.b.c": UPDATED},
    ),
)

INDEXED = (*NOTE, "CREATE INDEX note_id ON note (id)")

SILENT_CASES = (
    DdlCase("an index is created", ALL, NOTE, ("CREATE INDEX note_id ON note (id)",), NOTHING),
    DdlCase("a unique index is created", ALL, NOTE, ("CREATE UNIQUE INDEX note_id ON note (id)",), NOTHING),
    DdlCase("an index is dropped", ALL, INDEXED, ("DROP INDEX note_id",), NOTHING),
    DdlCase("rows are inserted", ALL, NOTE, ("INSERT INTO note VALUES (1, 'a', 1)",), NOTHING),
    DdlCase(
        "rows are updated and deleted",
        ALL,
        (*NOTE, "INSERT INTO note VALUES (1, 'a', 1), (2, 'b', 2)"),
        ("UPDATE note SET amount = 3", "DELETE FROM note WHERE id = 1"),
        NOTHING,
    ),
    DdlCase("a table is truncated", PD, NOTE, ("TRUNCATE note",), NOTHING),
    DdlCase("statistics are gathered", ALL, INDEXED, ("ANALYZE",), NOTHING),
    DdlCase("the database is vacuumed", ALL, NOTE, ("VACUUM",), NOTHING),
    DdlCase(
        "a table is rewritten by VACUUM FULL and CLUSTER",
        P,
        INDEXED,
        ("VACUUM FULL note", "CLUSTER note USING note_id"),
        NOTHING,
    ),
    DdlCase(
        "a right is granted",
        P,
        NOTE,
        ("GRANT SELECT ON note TO PUBLIC", "GRANT SELECT (id) ON note TO PUBLIC"),
        NOTHING,
    ),
    DdlCase("an owner is changed", P, NOTE, ("ALTER TABLE note OWNER TO pg_monitor",), NOTHING),
    DdlCase(
        "storage, statistics and fill factor are set",
        P,
        NOTE,
        (
            "ALTER TABLE note SET (fillfactor = 70)",
            "ALTER TABLE note ALTER COLUMN body SET STORAGE EXTERNAL",
            "ALTER TABLE note ALTER COLUMN id SET STATISTICS 7",
            "ALTER TABLE note SET UNLOGGED",
        ),
        NOTHING,
    ),
    DdlCase(
        "row-level security and a policy are set",
        P,
        NOTE,
        ("ALTER TABLE note ENABLE ROW LEVEL SECURITY", "CREATE POLICY own ON note USING (id = 1)"),
        NOTHING,
    ),
    DdlCase(
        "a trigger is created",
        PS,
        NOTE,
        {
            POSTGRESQL: (
                "CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
                "CREATE TRIGGER quiet AFTER INSERT ON note EXECUTE FUNCTION quiet()",
            ),
            SQLITE: ("CREATE TRIGGER quiet AFTER INSERT ON note BEGIN DELETE FROM bystander; END",),
        },
        NOTHING,
    ),
    DdlCase("a sequence is created", PD, (), ("CREATE SEQUENCE numbers",), NOTHING),
    DdlCase(
        "a function is created",
        PD,
        (),
        {
            POSTGRESQL: ("CREATE FUNCTION seven() RETURNS integer LANGUAGE sql AS 'SELECT 7'",),
            DUCKDB: ("CREATE MACRO seven() AS 7",),
        },
        NOTHING,
    ),
    DdlCase("a temporary table is created", ALL, (), ("CREATE TEMP TABLE passing (id integer)",), NOTHING),
    DdlCase(
        "a change is rolled back",
        ALL,
        NOTE,
        ("BEGIN", "ALTER TABLE note ADD COLUMN extra integer", "CREATE TABLE memo (id integer)", "ROLLBACK"),
        NOTHING,
    ),
)

CASES = (
    *COLUMN_CASES,
    *COMMENT_CASES,
    *TABLE_CASES,
    *VIEW_CASES,
    *KEY_CASES,
    *TYPE_CASES,
    *SCHEMA_CASES,
    *SILENT_CASES,
)


def cases_of(app: str) -> list[DdlCase]:
    return [case for case in CASES if app in case.apps]
