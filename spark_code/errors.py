"""Spark's errors by names of ours: those that a task raised come back as they were, the others in one sentence."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidemark import errors
from tidemark.errors import LakeUnreachable, SparkFailed, TaskLost, TidemarkError
from tidemark.runs.naming import translate

# Spark's words for a Python process that is gone, for a catalogue database, and for files that cannot be reached.
LOST = ("Python worker exited unexpectedly", "Connection reset", "EOFException")
CATALOGUE = ("UncheckedSQLException", "PSQLException", "SQLTransientConnectionException", "SQLiteException")
FILES = ("SdkClientException", "S3Exception", "NoHttpResponseException", "UnknownHostException")
_NAMED = re.compile(r"tidemark\.errors\.(\w+): (.+)")


@translate
def named_spark_error(failure: Exception) -> TidemarkError | None:
    """What a task raised, or what Spark itself could not do; None for what is not Spark's."""
    if not isinstance(failure, PySparkException | Py4JError):
        return None
    text = str(failure)
    found = _NAMED.search(text)
    kind = getattr(errors, found.group(1), None) if found else None
    if found and kind:
        raised: TidemarkError = kind(found.group(2).strip())
        return raised
    if any(words in text for words in CATALOGUE):
        return LakeUnreachable("the lake's catalogue database did not answer Spark. Check that it is up, and run again.")
    if any(words in text for words in FILES):
        return LakeUnreachable("the files of the lake could not be reached by Spark. Check the object store, and run again.")
    if any(words in text for words in LOST):
        return TaskLost(
            "the process of a Spark task was ended from outside; short of memory, perhaps. Nothing was published. "
            "Run again: what was finished is kept."
        )
    condition = failure.getCondition() if isinstance(failure, PySparkException) else None
    return SparkFailed(
        f"Spark failed with {condition or type(failure).__name__}. Nothing was published; the log has the details."
    )


@contextmanager
def named_errors() -> Iterator[None]:
    """Raises what a task raised: Spark only passes its text on."""
    try:
        yield
    except (PySparkException, Py4JError) as failure:
        raise named_spark_error(failure) or failure from failure
