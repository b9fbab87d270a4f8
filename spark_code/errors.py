"""Named errors that were raised inside a Spark task, brought back by name."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidemark import errors

# Spark's words for a Python process that is gone.
LOST = ("Python worker exited unexpectedly", "Connection reset", "EOFException")
_NAMED = re.compile(r"tidemark\.errors\.(\w+): (.+)")


@contextmanager
def named_errors() -> Iterator[None]:
    """Raises what a task raised: Spark only passes its text on."""
    try:
        yield
    except (PySparkException, Py4JError) as failure:
        found = _NAMED.search(str(failure))
        kind = getattr(errors, found.group(1), None) if found else None
        if found is None or kind is None:
            if any(words in str(failure) for words in LOST):
                raise errors.TaskLost(
                    "the process of a Spark task was ended from outside; short of memory, perhaps. Nothing was published. "
                    "Run again: what was finished is kept."
                ) from failure
            raise
        raise kind(found.group(2).strip()) from failure
