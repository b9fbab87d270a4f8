"""Text objects written by Spark tasks. Kept apart and light: every Python worker imports it."""

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tidemark.store import ObjectStore


def write_lines(lines: DataFrame, store: ObjectStore, key: str) -> dict[str, int | str]:
    """Writes `line` of every row as one object, from the one task that holds them.

    Returns rows, bytes, sha256, and how many rows are `changed`.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        body, rows, changed = bytearray(), 0, 0
        for batch in batches:
            body += text_of(batch["line"])
            rows += batch.num_rows
            changed += pc.sum(batch["changed"]).as_py() or 0
        digest = hashlib.sha256(body).hexdigest()
        store.put(key, memoryview(body))
        yield pa.record_batch({"rows": [rows], "changed": [changed], "bytes": [len(body)], "sha256": [digest]})

    row = lines.mapInArrow(write, "rows long, changed long, bytes long, sha256 string").collect()[0]
    return dict(row.asDict())


def text_of(lines: pa.Array) -> memoryview:
    """The bytes of a string array, which lie one after the other already."""
    if not len(lines):
        return memoryview(b"")
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(lines.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
