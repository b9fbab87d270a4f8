"""Whether a query would say the same again: what it reads, and whether it asks for anything but tables."""

import re

from sqlglot import exp

from tidemark.models.spec import AppendOptions, Filtered

# By chance, by whoever wrote the function, or by a name of a snapshot that may move.
_UNSTEADY = (
    exp.Anonymous, exp.QueryTransform, exp.Rand, exp.Randn, exp.Randstr, exp.Shuffle, exp.TableSample, exp.Uniform, exp.Uuid,
    exp.Version,
)  # fmt: skip
# What the clock or the session says, as functions, and as words that Spark also takes without brackets.
_ASKING = re.compile(r"(current|local|session)", re.IGNORECASE)
_SPOKEN = {"user", "localtimestamp", "current_time", "current_timestamp", "current_date", "current_user"}
# Texts that Spark takes for a moment that moves: a day by its name, or a time of today.
_MOMENT = re.compile(r"\s*((now|today|tomorrow|yesterday)\b|T?\d{1,2}:)", re.IGNORECASE)


def steady(query: exp.Expr) -> bool:
    """Whether the same tables give the same rows at any time. A function that nobody knows is taken for one that moves."""
    return not any(_moves(node) for node in query.walk())


def _moves(node: exp.Expr) -> bool:
    if isinstance(node, exp.Column):
        return not node.table and node.name.lower() in _SPOKEN
    if isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string):
        return _MOMENT.match(node.name) is not None
    return isinstance(node, _UNSTEADY) or (isinstance(node, exp.Func) and _ASKING.match(type(node).__name__) is not None)


def repeatable(options: Filtered) -> bool:
    """Whether a run over what the last one has read would change nothing: rows that are only added would come twice."""
    if options.by_condition:
        return False  # what a condition asks for is not known
    if isinstance(options, AppendOptions):
        return options.deduplicates or (options.filter_column is not None and options.lookback is None)
    return True
