"""What a run finds before it reads: the snapshot of every table that its query comes from, through views."""

import json
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from sqlglot import exp
from sqlglot.errors import SqlglotError

from spark_code.models.adapter import ModelAdapter
from tidemark.lake import CATALOG
from tidemark.models.hashes import digest
from tidemark.models.place import spark_name
from tidemark.models.sources import steady
from tidemark.models.spec import ModelMetadata
from tidemark.models.sql import BadSql, select_of, table_name, tables

CREATED = "CREATE VIEW "
BODY = "\nAS\n"
# Spark puts settings and the environment in its place.
SUBSTITUTED = "${"


def found_before(adapter: ModelAdapter, sql: str, metadata: ModelMetadata) -> str | None:
    """A digest of all that a query is about to be made of, or None where that cannot be known.

    Taken before the query is read, so it is never of anything newer than what the run has seen.
    """
    found: dict[str, Any] = {}
    try:
        known = SUBSTITUTED not in sql and _found(adapter, sql, found)
    except (BadSql, SqlglotError):
        known = False  # Spark may read what sqlglot does not
    if not known:
        return None
    spark = [pyspark.__version__, adapter.platform.config.spark.config]
    return digest(json.dumps([sql, metadata.model_dump(mode="json"), found, spark], sort_keys=True, default=str))


def _found(adapter: ModelAdapter, sql: str, found: dict[str, Any], *, of_view: bool = False) -> bool:
    """Notes every table and view behind the query. False if what it says hangs on something else."""
    query = select_of(sql)
    if not steady(query):
        return False
    for each in tables(query):
        name = table_name(each)
        if not _of_the_lake(each, of_view):
            return False
        if name in found:
            continue
        table = adapter.reader.table(name)
        if table is not None:
            of = table.metadata
            found[name] = [str(of.table_uuid), of.current_snapshot_id, of.current_schema_id]
            continue
        # All words of a view count, the names of its columns too.
        found[name] = words = _view(adapter, name)
        if BODY not in words or not _found(adapter, words.partition(BODY)[2], found, of_view=True):
            return False
    return True


def _of_the_lake(table: exp.Table, of_view: bool) -> bool:
    """Whether the name is the lake's beyond doubt: a short one may be a temporary view's, or mean more inside of a view."""
    named = table.parts[0].name.lower() == CATALOG
    return len(table.parts) > 2 if named else len(table.parts) > 1 and not of_view


def _view(adapter: ModelAdapter, name: str) -> str:
    """How a view was made; empty if there is none."""
    try:
        text = str(adapter.spark.sql(f"SHOW CREATE TABLE {spark_name(name)}").collect()[0][0])
    except PySparkException:
        return ""
    return text if text.startswith(CREATED) else ""
