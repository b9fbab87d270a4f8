"""What the PostgreSQL pack asks the server, set-based, with one definition of facts for reading and for hashing."""

from psycopg.sql import SQL

# One message opens the snapshot and fixes every setting that shows in printed types, defaults and view definitions.
# Catalogues often have no statistics, least of all after a big migration: left to guess, the planner took 170 s where
# hashing takes 2. Nested loops are for a few tables.
OPEN = SQL("""
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL search_path = '';
SET LOCAL timezone = 'UTC';
SET LOCAL datestyle = 'ISO, YMD';
SET LOCAL intervalstyle = 'postgres';
SET LOCAL bytea_output = 'hex';
SET LOCAL extra_float_digits = 1;
SET LOCAL quote_all_identifiers = off;
SET LOCAL lock_timeout = {lock_timeout};
SET LOCAL work_mem = '64MB';
SET LOCAL enable_sort = off;
SET LOCAL enable_nestloop = {nested_loops};
SET LOCAL jit = off""")

DATABASE = SQL("""
SELECT d.oid::text AS id, d.datname::text AS name, s.description AS comment, current_user::text AS asking,
       transaction_timestamp() AT TIME ZONE 'UTC' AS now,
       has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') AS may_identify
FROM pg_database AS d
LEFT JOIN pg_shdescription AS s ON s.objoid = d.oid AND s.classoid = 'pg_database'::regclass
WHERE d.datname = current_database()""")

# As long as no transaction that writes has begun or ended, nothing can have changed. What only reads gets no number.
PULSE = SQL("""
SELECT concat_ws(' ', oid, extract(epoch FROM pg_postmaster_start_time()), pg_current_snapshot())
FROM pg_database WHERE datname = current_database()""")

SYSTEM = SQL("SELECT system_identifier::text FROM pg_control_system()")

SCHEMAS = SQL("""
SELECT n.nspname::text AS name, d.description AS comment,
       coalesce(has_schema_privilege(n.oid, 'USAGE'), false) AS listed
FROM pg_namespace AS n
LEFT JOIN pg_description AS d ON d.objoid = n.oid AND d.classoid = 'pg_namespace'::regclass
WHERE NOT starts_with(n.nspname::text, 'pg_') AND n.nspname <> 'information_schema'
ORDER BY n.nspname""")

IN_SCOPE = SQL("""
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind, c.relpartbound
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND NOT starts_with(n.nspname::text, 'pg_') AND n.nspname <> 'information_schema'
  AND has_schema_privilege(n.oid, 'USAGE')
  AND n.nspname || '.' || c.relname LIKE ANY (%(include)s::text[])
  AND NOT n.nspname || '.' || c.relname LIKE ANY (%(exclude)s::text[])""")

# What has the name now: a table that was dropped and created again, or swapped by renaming, is another object.
REQUESTED = SQL("""
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind, c.relpartbound
FROM unnest(%(schemas)s::name[], %(names)s::name[]) AS requested (schema, name)
JOIN pg_namespace AS n ON n.nspname = requested.schema
JOIN pg_class AS c ON c.relname = requested.name AND c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')""")

# The one definition of a column's facts. `columns` reads these rows, `listing` hashes the very same.
COLUMNS = SQL("""
WITH RECURSIVE chosen AS MATERIALIZED ({chosen}),
-- Every domain with what it is made of, through any number of domains: the last one has length and precision, and each
-- may forbid NULL.
step AS (
    SELECT t.oid, t.typbasetype AS base, t.typtypmod AS typmod, t.typnotnull AS not_null
    FROM pg_type AS t WHERE t.typtype = 'd'
    UNION ALL
    SELECT step.oid, t.typbasetype, t.typtypmod, step.not_null OR t.typnotnull
    FROM step JOIN pg_type AS t ON t.oid = step.base AND t.typtype = 'd'
),
domain AS MATERIALIZED (
    SELECT step.* FROM step JOIN pg_type AS t ON t.oid = step.base AND t.typtype <> 'd'
),
pointer AS MATERIALIZED (
    SELECT f.conrelid AS oid, k.attnum, f.confrelid AS target_oid, k.target_attnum
    FROM chosen
    JOIN pg_constraint AS f ON f.conrelid = chosen.oid AND f.contype = 'f'
    -- A key to a partitioned table is recorded once more for every partition: those are not of the user's making.
    LEFT JOIN pg_constraint AS whole ON whole.oid = f.conparentid AND whole.conrelid = f.conrelid
    CROSS JOIN unnest(f.conkey, f.confkey) AS k (attnum, target_attnum)
    WHERE whole.oid IS NULL
),
reference AS (
    SELECT pointer.oid, pointer.attnum,
           array_agg(DISTINCT ARRAY[current_database()::text, n.nspname::text, t.relname::text, a.attname::text])
               AS targets
    FROM pointer
    JOIN pg_class AS t ON t.oid = pointer.target_oid
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = pointer.target_oid AND a.attnum = pointer.target_attnum
    GROUP BY pointer.oid, pointer.attnum
),
fact AS (
    SELECT a.attrelid AS oid, a.attname::text AS name, a.attnum::int AS ordinal,
           format_type(a.atttypid, a.atttypmod) AS data_type,
           CASE WHEN plain.typmod < 0 THEN NULL
                WHEN plain.type IN ('bpchar'::regtype, 'varchar'::regtype) THEN plain.typmod - 4
                WHEN plain.type IN ('bit'::regtype, 'varbit'::regtype) THEN plain.typmod END AS length,
           CASE WHEN plain.typmod < 0 THEN NULL
                WHEN plain.type = 'numeric'::regtype THEN ((plain.typmod - 4) >> 16) & 65535
                WHEN plain.type IN ('timestamp'::regtype, 'timestamptz'::regtype, 'time'::regtype, 'timetz'::regtype)
                THEN plain.typmod END AS precision,
           -- Eleven bits with a sign: a scale may be negative.
           CASE WHEN plain.typmod >= 0 AND plain.type = 'numeric'::regtype
                THEN (((plain.typmod - 4) & 2047) # 1024) - 1024 END AS scale,
           NOT (a.attnotnull OR coalesce(domain.not_null, false)) AS nullable,
           CASE WHEN a.attidentity = 'a' THEN 'GENERATED ALWAYS AS IDENTITY'
                WHEN a.attidentity = 'd' THEN 'GENERATED BY DEFAULT AS IDENTITY'
                WHEN a.attgenerated = 's' THEN 'GENERATED ALWAYS AS (' || pg_get_expr(d.adbin, d.adrelid) || ') STORED'
                WHEN a.attgenerated = 'v' THEN 'GENERATED ALWAYS AS (' || pg_get_expr(d.adbin, d.adrelid) || ') VIRTUAL'
                ELSE pg_get_expr(d.adbin, d.adrelid) END AS default_value,
           s.description AS comment, array_position(p.conkey, a.attnum) AS primary_key,
           reference.targets AS foreign_keys
    FROM chosen
    LEFT JOIN pg_constraint AS p ON p.conrelid = chosen.oid AND p.contype = 'p'
    JOIN pg_attribute AS a ON a.attrelid = chosen.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN domain ON domain.oid = a.atttypid
    CROSS JOIN LATERAL (SELECT coalesce(domain.base, a.atttypid) AS type, coalesce(domain.typmod, a.atttypmod) AS typmod)
        AS plain
    LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_description AS s
           ON s.objoid = a.attrelid AND s.objsubid = a.attnum AND s.classoid = 'pg_class'::regclass
    LEFT JOIN reference ON reference.oid = a.attrelid AND reference.attnum = a.attnum
)""")

# Rows cannot cancel each other out: their ordinals differ. The outer hash mixes what the hash of a record only adds up.
TABLES = SQL("""
{columns},
columns_digest AS (
    SELECT fact.oid, count(*) AS column_count, min(fact.ordinal) AS first,
           bit_xor(hashint8extended(hash_record_extended(
               ROW(fact.name, fact.ordinal, fact.data_type, fact.length, fact.precision, fact.scale, fact.nullable,
                   fact.default_value, fact.comment, fact.primary_key, fact.foreign_keys), 0), 0)) AS hash
    FROM fact GROUP BY fact.oid
),
-- A partition has one parent, an heir may have several. The names are those of now, whatever the scope.
parent AS (
    SELECT i.inhrelid AS oid,
           array_agg(ARRAY[current_database()::text, n.nspname::text, p.relname::text] ORDER BY i.inhseqno) AS names
    FROM chosen
    JOIN pg_inherits AS i ON i.inhrelid = chosen.oid
    JOIN pg_class AS p ON p.oid = i.inhparent
    JOIN pg_namespace AS n ON n.oid = p.relnamespace
    GROUP BY i.inhrelid
),
part AS (
    SELECT i.inhparent AS oid, count(*) AS count
    FROM chosen JOIN pg_inherits AS i ON i.inhparent = chosen.oid WHERE chosen.relkind = 'p'
    GROUP BY i.inhparent
),
shown AS MATERIALIZED (
    SELECT chosen.oid, chosen.schema, chosen.name, columns_digest.first,
           CASE chosen.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view'
                               WHEN 'm' THEN 'materialized view' ELSE 'foreign table' END AS kind,
           s.description AS comment,
           CASE WHEN chosen.relkind IN ('v', 'm') THEN pg_get_viewdef(chosen.oid) END AS definition,
           coalesce(columns_digest.column_count, 0) AS column_count,
           CASE WHEN chosen.relkind = 'p' THEN pg_get_partkeydef(chosen.oid) END AS partition_key,
           CASE WHEN chosen.relkind = 'p' THEN coalesce(part.count, 0) END AS partition_count,
           pg_get_expr(chosen.relpartbound, chosen.oid) AS partition_bound, parent.names AS parents,
           coalesce(columns_digest.hash, 0) AS hash
    FROM chosen
    LEFT JOIN parent ON parent.oid = chosen.oid
    LEFT JOIN part ON part.oid = chosen.oid
    LEFT JOIN columns_digest ON columns_digest.oid = chosen.oid
    LEFT JOIN pg_description AS s ON s.objoid = chosen.oid AND s.objsubid = 0 AND s.classoid = 'pg_class'::regclass
),
listed AS (
    SELECT oid, first, schema, name, kind, oid::text AS object_id,
           to_hex(hash) || '-'
           || to_hex(hashtextextended(ROW(kind, comment, definition, column_count, partition_key, partition_count,
                                          partition_bound, parents)::text, 0)) AS digest,
           comment, definition, column_count, partition_key, partition_count, partition_bound, parents
    FROM shown
)""")

LISTING = SQL("""
{tables}
SELECT schema, name, kind, object_id, digest, comment, definition, column_count, partition_key, partition_count,
       partition_bound, parents
FROM listed""")

# Facts of a table come with its first column, or alone if it has none. The functions that print types, defaults and
# definitions look at the catalogue of the moment they are called. `fact` is used twice and so evaluated once: columns and
# digest cannot differ.
READING = SQL("""
{tables}
SELECT listed.oid, head.schema, head.name, head.kind, head.object_id, head.digest, head.comment, head.definition,
       head.column_count, head.partition_key, head.partition_count, head.partition_bound, head.parents,
       fact.name, fact.ordinal, fact.data_type, fact.length, fact.precision, fact.scale, fact.nullable,
       fact.default_value, fact.comment, fact.primary_key, fact.foreign_keys
FROM listed
LEFT JOIN fact ON fact.oid = listed.oid
LEFT JOIN listed AS head ON head.oid = listed.oid AND head.first IS NOT DISTINCT FROM fact.ordinal""")

# The time is left out: it never stands still. What the version prints and hashes is only the same within a version.
FINGERPRINT = SQL("""
{tables}
SELECT concat_ws(':', current_setting('server_version_num'),
    (SELECT hashtextextended(ROW(d.id, d.name, d.comment)::text, 0) FROM ({database}) AS d),
    (SELECT coalesce(bit_xor(hashtextextended(s::text, 0)), 0) FROM ({schemas}) AS s),
    (SELECT coalesce(bit_xor(hashtextextended(ROW(t.schema, t.name, t.object_id, t.digest)::text, 0)), 0)
     FROM listed AS t))""")
