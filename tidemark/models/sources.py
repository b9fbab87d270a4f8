"""Whether a query would say the same again: what it reads, and whether it asks for anything but tables."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from sqlglot import exp

from tidemark.models.hashes import digest, sql_hash
from tidemark.models.spec import AppendOptions, Filtered, ModelMetadata

# Words that Spark also takes without brackets for what the clock or the session says.
_SPOKEN = {"user", "localtimestamp", "current_time", "current_timestamp", "current_catalog", "current_date", "current_user"}
# Texts that Spark takes for a moment that moves.
_MOMENTS = {"now", "today", "tomorrow", "yesterday"}
# By chance, or by whoever wrote the function.
_UNSTEADY = (exp.Anonymous, exp.Rand, exp.Randn, exp.Uuid, exp.Shuffle, exp.Uniform, exp.Randstr, exp.TableSample)


def steady(query: exp.Expr) -> bool:
    """Whether the same tables give the same rows at any time. A function that nobody knows is taken for one that moves."""
    return not any(_moves(node) for node in query.walk())


def _moves(node: exp.Expr) -> bool:
    if isinstance(node, _UNSTEADY):
        return True
    if isinstance(node, exp.Func):
        return type(node).__name__.startswith(("Current", "Local", "Session", "Now"))
    if isinstance(node, exp.Column):
        return not node.table and node.name.lower() in _SPOKEN
    return isinstance(node, exp.Literal) and node.is_string and node.name.strip().lower() in _MOMENTS


def repeatable(options: Filtered) -> bool:
    """Whether a run over what the last one has read would change nothing: rows that are only added would come twice."""
    if options.by_condition:
        return False  # what a condition asks for is not known
    if isinstance(options, AppendOptions):
        return options.deduplicates or (options.filter_column is not None and options.lookback is None)
    return True


@dataclass(frozen=True)
class Seen:
    """A table as a run found it: which one, at which snapshot, with which columns."""

    table: str
    snapshot: int | None
    schema: int

    @classmethod
    def of(cls, table: Table) -> "Seen":
        return cls(str(table.metadata.table_uuid), table.metadata.current_snapshot_id, table.metadata.current_schema_id)


def made_from(sql: str, metadata: ModelMetadata, sources: Mapping[str, Seen | str]) -> str:
    """A digest of everything that the rows of a model come from: query, options, tables, and the words of views."""
    told = {name: source if isinstance(source, str) else vars(source) for name, source in sorted(sources.items())}
    return digest(json.dumps([sql_hash(sql), metadata.model_dump(mode="json"), told], sort_keys=True, default=str))
