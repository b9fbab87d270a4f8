"""Spark's Python workers, which are forked once and then run task after task."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from zipimport import zipimporter


@contextmanager
def quick_next_task() -> Iterator[None]:
    """Around what a task does, so that the worker begins its next one in milliseconds instead of a quarter of a second.

    Before a task Spark has Python reread the lists of the archives that it has found modules in, once for each package:
    they are forgotten here, and found again if they must be. After a task it collects garbage among all that was ever
    imported: that is set aside, once, when the imports of the first task are done.
    """
    yield
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if not gc.get_freeze_count():
        gc.freeze()
