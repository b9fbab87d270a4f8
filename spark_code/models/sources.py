"""What a run finds before it reads: the snapshot of every table that its query comes from, through views."""

from pyspark.errors import PySparkException
from sqlglot import exp

from spark_code.models.adapter import ModelAdapter
from tidemark.lake import CATALOG
from tidemark.models.place import spark_name
from tidemark.models.sources import Seen, made_from, steady
from tidemark.models.spec import ModelMetadata
from tidemark.models.sql import BadSql, select_of, table_name, tables

CREATED = "CREATE VIEW "
BODY = "\nAS\n"


def found_before(adapter: ModelAdapter, sql: str, metadata: ModelMetadata) -> str | None:
    """A digest of what a query is about to read, or None where that cannot be told.

    Taken before the query is read, so it is never of anything newer than what the run has seen.
    """
    try:
        found: dict[str, Seen | str] = {}
        return made_from(sql, metadata, found) if _found(adapter, sql, found) else None
    except BadSql:
        return None  # Spark may read what sqlglot does not


def _found(adapter: ModelAdapter, sql: str, found: dict[str, Seen | str], *, of_view: bool = False) -> bool:
    """Notes every table and view behind the query. False if what it says hangs on something else."""
    query = select_of(sql)
    if not steady(query):
        return False
    for each in tables(query):
        name = table_name(each)
        if name in found:
            continue
        if not _of_the_lake(each, of_view):
            return False
        table = adapter.reader.table(name)
        if table is not None:
            found[name] = Seen.of(table)
            continue
        words = _view(adapter, name)
        if words is None:
            return False
        found[name] = words
        if not _found(adapter, words, found, of_view=True):
            return False
    return True


def _of_the_lake(table: exp.Table, of_view: bool) -> bool:
    """Whether the name is the lake's beyond doubt: a short one may be a temporary view's, or mean more inside of a view."""
    return table.parts[0].name.lower() == CATALOG if of_view else len(table.parts) > 1


def _view(adapter: ModelAdapter, name: str) -> str | None:
    """The query of a view."""
    try:
        text = str(adapter.spark.sql(f"SHOW CREATE TABLE {spark_name(name)}").collect()[0][0])
    except PySparkException:
        return None
    return text.partition(BODY)[2] if text.startswith(CREATED) and BODY in text else None
