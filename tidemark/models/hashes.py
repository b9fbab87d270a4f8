"""What a model's last run was of: hashes of its query and of the options that decide what its rows mean."""

import hashlib
import json

from tidemark.models.spec import Incremental
from tidemark.models.sql import normalized

# What changes how far a run looks, or what may happen to the schema, but not what a row is.
NOT_MEANING = {"lookback", "start_value"}


def sql_hash(sql: str) -> str:
    """Equal for queries that differ in comments, white space and letter case only."""
    return digest(normalized(sql))


def config_hash(incremental: Incremental) -> str:
    """Equal for options under which the rows of the table mean the same."""
    options = incremental.options.model_dump(mode="json", exclude_none=True, exclude=NOT_MEANING)
    return digest(json.dumps({"strategy": incremental.strategy, **options}, sort_keys=True))


def digest(text: str) -> str:
    """A short text to know a long one by."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
