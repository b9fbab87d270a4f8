"""A PostgreSQL of 10,000 tables × 20 columns: a full run and a run without a change, next to bare queries."""

import shutil
import tempfile
from pathlib import Path

import psycopg
import yaml

from benchmarks.machine import median_of
from demo.postgres import postgres
from platform_assets.catalog.launch import launch
from platform_assets.instance import open_instance
from tidemark.catalog.packs.base import pack_for
from tidemark.catalog.scope import Scope
from tidemark.config import load_config

TABLES, WIDTH = 10_000, 20

# What somebody would write who only wants all columns, once.
ALL_COLUMNS = """
SELECT n.nspname, c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
"""


def fill(url: str) -> None:
    columns = ", ".join(f"c{n} varchar({n + 10}) DEFAULT 'x'" for n in range(WIDTH - 1))
    with psycopg.connect(url, autocommit=True) as connection:
        for start in range(0, TABLES, 500):
            statements = [f"CREATE TABLE t{n} (id int PRIMARY KEY, {columns})" for n in range(start, start + 500)]
            connection.execute(";".join(statements).encode())
        connection.execute("ANALYZE pg_class")
        connection.execute("ANALYZE pg_attribute")


def all_columns(url: str) -> int:
    with psycopg.connect(url) as connection:
        return len(connection.execute(ALL_COLUMNS.encode()).fetchall())


def measure(repeat: int) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="tidemark-bench-"))
    folder.chmod(0o755)
    (folder / "pg").mkdir()
    (folder / "pg").chmod(0o755)
    try:
        with postgres(folder / "pg", max_locks_per_transaction="4096") as server:
            url = server.new_database()
            fill(url)
            shop = {"app": "postgresql", "id": "1", "url": url, "incremental-extraction": True}
            (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "connections": {"shop": shop}}))
            config = load_config(folder / "tidemark.yaml")
            pack = pack_for("postgresql", url)
            taken = {
                "one psycopg query of all columns": median_of(repeat, lambda: all_columns(url)),
                "digest query": median_of(repeat, lambda: pack.listing(Scope())),
            }
            with open_instance(config) as instance:
                launch(config, instance, "shop", full=True, allow_removals=False)  # warms the session
                taken["full run"] = median_of(
                    repeat, lambda: launch(config, instance, "shop", full=True, allow_removals=False)
                )
                launch(config, instance, "shop", full=False, allow_removals=False)
                taken["run without a change"] = median_of(
                    repeat, lambda: launch(config, instance, "shop", full=False, allow_removals=False)
                )
            return taken
    finally:
        shutil.rmtree(folder, ignore_errors=True)
