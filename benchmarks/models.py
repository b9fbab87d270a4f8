"""`make bench-models`: a batch merged into a large table, next to dbt with DuckDB in one run, with machine and versions."""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import duckdb

from benchmarks import machine

ROOT = Path(__file__).parent.parent
PEER = ["dbt-core>=1.11,<1.12", "dbt-duckdb==1.11.1"]

# Ids of the table are even, so that a batch can have new ones between them.
ROWS = """
SELECT id, 'customer ' || id % 9973 AS customer, (id % 1000)::INT AS quantity, (id * 1.25)::DECIMAL(14, 2) AS amount,
       TIMESTAMP '2026-01-01' + INTERVAL (id) SECOND AS updated_at, {note} AS note
FROM ({ids}) ORDER BY id
"""
FULL = "SELECT 2 * n AS id FROM range({rows}) AS t(n)"
# Half of it changes rows all over the table, half of it comes behind them.
SPREAD = """
SELECT 2 * (n * ({rows} // ({batch} // 2)) + {number}) AS id FROM range({batch} // 2) AS t(n)
UNION ALL SELECT 2 * {rows} + {number} * {batch} + n FROM range({batch} // 2) AS t(n)
"""
# All of it within a hundredth of the keys: half of it changes rows, half of it comes between them.
CLUSTERED = """
SELECT {rows} + {number} * ({rows} // 25) + n AS id FROM range({batch}) AS t(n)
"""
METADATA = {"incremental": {"strategy": "merge", "merge": {"unique_key": ["id"]}, "on_schema_change": "append_new_columns"}}
QUERY = "SELECT * FROM bench.feed"
# The same with a mark: a run reads what is behind it.
MARKED = {"incremental": {"strategy": "merge", "merge": {"unique_key": ["id"], "filter_column": "updated_at"}}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median is shown")
    parser.add_argument("--without-peer", action="store_true")
    chosen = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    print(machine.described(), flush=True)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as text:
        folder = Path(text)
        data = Data(folder, chosen.rows, chosen.batch)
        spread = [data.batch(SPREAD, number) for number in range(chosen.repeat + 1)]
        clustered = [data.batch(CLUSTERED, number) for number in range(chosen.repeat)]
        ours(folder, data.full(), spread, clustered)
        if not chosen.without_peer:
            for name, batch in (("spread", spread[0]), ("clustered", clustered[0])):
                taken = dbt(folder / name, data.full(), batch, chosen.repeat)
                show(f"dbt + DuckDB, whole process: merge, {name}", taken)


class Data:
    """Parquet files that both sides read."""

    def __init__(self, folder: Path, rows: int, batch: int) -> None:
        self.folder, self.rows, self.size = folder, rows, batch

    def full(self) -> Path:
        return self._written("full", FULL, 0, "'note ' || id")

    def batch(self, ids: str, number: int) -> Path:
        return self._written(f"{'spread' if ids is SPREAD else 'clustered'}-{number}", ids, number, "'batch'")

    def _written(self, name: str, ids: str, number: int, note: str) -> Path:
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            rows = ROWS.format(ids=ids.format(rows=self.rows, batch=self.size, number=number), note=note)
            duckdb.connect().execute(f"COPY ({rows}) TO '{path}' (COMPRESSION zstd)")
        return path


def ours(folder: Path, full: Path, spread: list[Path], clustered: list[Path]) -> None:
    from spark_code.models.materialize import MaterializationHandler
    from spark_code.platform import Platform
    from tidemark.config import load_config
    from tidemark.lake import CATALOG
    from tidemark.models.results import ModelResult

    (folder / "tidemark.yaml").write_text("store: state\ncontrol: sqlite:///control.db\n")
    started = time.monotonic()
    platform = Platform(load_config(folder / "tidemark.yaml"))
    handler, spark = MaterializationHandler(platform), platform.spark
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bench")
    print(f"Spark begun in {time.monotonic() - started:.2f} s", flush=True)

    def feed(path: Path) -> None:
        spark.read.parquet(str(path)).writeTo(f"{CATALOG}.bench.feed").using("iceberg").createOrReplace()

    def run(query: str = QUERY) -> tuple[float, ModelResult]:
        started = time.monotonic()
        result = handler.materialize("shop.orders", query, "incremental", METADATA)
        return time.monotonic() - started, result

    def merged(batches: list[Path]) -> list[float]:
        taken = []
        for batch in batches:
            feed(batch)
            seconds, result = run()
            taken.append(seconds)
            print(f"    {seconds:6.2f} s   {json.dumps(result.told(), default=str)[:300]}", flush=True)
        return taken

    feed(full)
    show("ours: first run, everything", [run()[0]])
    first, *rest = merged(spread)
    show("ours: merge, spread, first of the process", [first])
    show("ours: merge, spread, warm", rest)
    show("ours: merge, clustered on 1 % of the keys, warm", merged(clustered))
    show("ours: the same batch again, all of it unchanged, warm", merged([clustered[-1] for _ in rest]))
    wider = "SELECT *, 1 AS channel FROM bench.feed WHERE false"
    show("ours: a new column, no rows, append_new_columns", [run(wider)[0]])
    feed(full)
    handler.materialize("shop.marked", QUERY, "incremental", MARKED)

    def quiet() -> float:
        started = time.monotonic()
        result = handler.materialize("shop.marked", QUERY, "incremental", MARKED)
        assert result.status == "unchanged"
        return time.monotonic() - started

    show("ours: nothing changed, warm", [quiet() for _ in rest])
    moved = []
    for number, _ in enumerate(rest):
        row = f"SELECT {-number}L, 'old', 1, 1.25BD, TIMESTAMP_NTZ'2020-01-01 00:00:00', 'old'"
        spark.sql(f"INSERT INTO {CATALOG}.bench.feed {row}")
        moved.append(quiet())
    show("ours: a source that changed, nothing behind the mark", moved)


def show(what: str, taken: list[float]) -> None:
    each = ", ".join(f"{seconds:.2f}" for seconds in taken)
    print(f"{what:<52} {statistics.median(taken):6.2f} s   ({each})", flush=True)


def dbt(folder: Path, full: Path, batch: Path, repeat: int) -> list[float]:
    folder.mkdir()
    (folder / "full.parquet").symlink_to(full)
    (folder / "batch.parquet").symlink_to(batch)
    words: list[str | Path] = [
        machine.peer_environment("dbt", PEER),
        Path(__file__).with_name("dbt_peer.py"),
        folder,
        str(repeat),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [float(each) for each in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    main()
