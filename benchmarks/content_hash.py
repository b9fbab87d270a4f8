"""The content hash of a million records of ten columns on one core, and what DuckDB's md5 takes for the same.

`python -m benchmarks.content_hash`
"""

import time
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.machine import described
from tidemark.connectors.envelope import content_hash

ROWS = 1_000_000
TIMES = 3


def texts(name: str) -> Any:
    return pa.array([f"text {number * 7919 % ROWS} of {name}" for number in range(ROWS)])


def batches() -> dict[str, Any]:
    """Numbers only, text only, and what a table of orders looks like, a tenth of some columns NULL."""
    some = np.random.default_rng(1)
    missing = some.random(ROWS) < 0.1
    orders = {
        "id": pa.array(np.arange(ROWS)),
        "quantity": pa.array(some.integers(0, 100, ROWS).astype("i4"), mask=missing),
        "price": pa.array(some.integers(0, 10**8, ROWS)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
        "weight": pa.array(some.random(ROWS), mask=missing),
        "open": pa.array(some.random(ROWS) < 0.5),
        "changed": pa.array(some.integers(0, 2**50, ROWS)).cast(pa.timestamp("us", "UTC")),
        "day": pa.array(some.integers(0, 20_000, ROWS).astype("i4")).cast(pa.date32()),
        "name": texts("name"),
        "city": pa.array(["Berlin", "Paris", None, "Rome"] * (ROWS // 4)).dictionary_encode(),
        "note": texts("note"),
    }
    return {
        "orders": pa.record_batch(orders),
        "text": pa.record_batch({f"c{place}": texts(str(place)) for place in range(10)}),
        "integers": pa.record_batch({f"c{place}": pa.array(np.arange(ROWS) * place) for place in range(10)}),
    }


def by_duckdb(batch: Any) -> Any:
    """The peer: md5 over the record as JSON, which keeps NULL and '' and the columns apart."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("batch", pa.Table.from_batches([batch]))
        columns = ", ".join(f'"{name}" := "{name}"' for name in sorted(batch.schema.names))
        return connection.sql(f"SELECT md5(to_json(struct_pack({columns}))) FROM batch").to_arrow_table()


def best(work: Callable[[Any], Any], batch: Any) -> float:
    """Seconds of processor time, the best of a few: others may be using the machine."""
    found = []
    for _ in range(TIMES):
        started = time.process_time()
        work(batch)
        found.append(time.process_time() - started)
    return min(found)


def main() -> None:
    pa.set_cpu_count(1)
    print(described())
    print(f"{ROWS:,} records, 10 columns, processor seconds: content_hash, DuckDB md5 of JSON")
    for name, batch in batches().items():
        print(f"  {name:10} {best(content_hash, batch):5.2f} {best(by_duckdb, batch):5.2f}")


if __name__ == "__main__":
    main()
