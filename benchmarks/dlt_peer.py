"""The peer: dlt with its connectorx backend, PostgreSQL → Parquet files. Runs in an environment of its own."""

import sys
import tempfile
import time
from pathlib import Path

import dlt
from dlt.sources.sql_database import sql_table


def load(url: str) -> float:
    """Seconds for one load of the whole table into an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        pipeline = dlt.pipeline(
            "peer", destination=dlt.destinations.filesystem(Path(folder, "out").as_uri()), dataset_name="bronze",
            pipelines_dir=str(Path(folder, "state")), progress=None,
        )  # fmt: skip
        started = time.monotonic()
        table = sql_table(credentials=url, table="orders", backend="connectorx", reflection_level="full")
        pipeline.run(table, loader_file_format="parquet")
        return time.monotonic() - started


if __name__ == "__main__":
    for _ in sys.stdin:
        print(f"{load(sys.argv[1]):.3f}", flush=True)
