"""`make bench-connectors`: PostgreSQL → Bronze beside dlt in one run, with machine and versions."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from benchmarks import machine

ROOT = Path(__file__).parent.parent
PEER = ["dlt[filesystem,parquet,sql_database]==1.31.0", "connectorx==0.4.6", "psycopg[binary]"]

TABLE = """
CREATE TABLE orders AS SELECT
    n::bigint AS id, 'customer ' || n % 9973 AS customer, (n % 1000)::int AS quantity, (n * 1.25)::numeric(14, 2) AS amount,
    n % 2 = 0 AS paid, date '2026-01-01' + (n % 300)::int AS ordered_on, md5(n::text) AS reference,
    n / 7.0::float8 AS weight,
    CASE WHEN n % 10 = 0 THEN NULL ELSE 'note ' || n END AS note,
    timestamptz '2026-01-01 00:00:00+00' + n * interval '1 second' AS updated_at
FROM generate_series(1, {rows}) AS n
"""

CHANGE = "UPDATE orders SET updated_at = clock_timestamp(), quantity = quantity + 1 WHERE id %% 100 = %s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connectors")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is shown")
    parser.add_argument(
        "--warm-up", type=int, default=10, help="runs before those, while Java still compiles; of dlt as many"
    )
    parser.add_argument("--sizes", default="1,4", help="millions of rows: the first one beside dlt, of the others only once")
    parser.add_argument("--ours", metavar="URL", help=argparse.SUPPRESS)  # a child: this size alone, with a Java of its own
    chosen = parser.parse_args()
    if chosen.ours:
        ours(chosen.ours, int(chosen.sizes), chosen)
        return
    os.environ["PYTHONPATH"] = str(ROOT)
    print(machine.described(), flush=True)
    from demo.postgres import postgres

    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as text:
        folder = Path(text)
        folder.chmod(0o755)
        (folder / "pg").mkdir()
        (folder / "pg").chmod(0o755)
        with postgres(folder / "pg") as server:
            for place, size in enumerate(int(each) for each in chosen.sizes.split(",")):
                url = server.new_database()
                server.execute(
                    url, TABLE.format(rows=size * 1_000_000), "ALTER TABLE orders ADD PRIMARY KEY (id)",
                    "CREATE INDEX ON orders (updated_at, id)", "VACUUM ANALYZE orders",
                )  # fmt: skip
                repeat, warm_up = (chosen.repeat, chosen.warm_up) if place == 0 else (1, 1)
                asked = {"--ours": url, "--sizes": size, "--repeat": repeat, "--warm-up": warm_up}
                words = [str(word) for pair in asked.items() for word in pair]
                subprocess.run([sys.executable, "-m", "benchmarks.connectors", *words], check=True)
                if place == 0:
                    dlt(url, size, chosen)


def ours(url: str, size: int, chosen: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        _ours(url, size, Path(folder), chosen)


def _ours(url: str, size: int, folder: Path, chosen: argparse.Namespace) -> None:
    from spark_code.connectors.run import IngestRun
    from spark_code.connectors.subject import StreamSubject
    from spark_code.platform import Platform
    from tidemark.config import load_config
    from tidemark.connectors.manifest import load_manifest

    (folder / "tidemark.yaml").write_text("store: state\n")
    stream = {"id": "shop.orders", "source": "orders", "key": ["id"], "cursor": "updated_at"}
    manifest = {"connector": "shop", "kind": "sql", "settings": {"url": url}, "streams": [stream]}
    (folder / "shop.json").write_text(json.dumps(manifest))
    described = load_manifest(folder / "shop.json")
    platform = Platform(load_config(folder / "tidemark.yaml"))

    def ran(tenant: str) -> tuple[float, dict[str, float]]:
        subject = StreamSubject(platform, tenant, described, described.streams[0])
        started = time.monotonic()
        run = IngestRun(subject, f"run-{time.monotonic_ns()}")
        run.begin()
        try:
            with run.step("plan"):
                plan = run.plan()
            with run.step("land"):
                run.land(plan)
            run.publish()
        finally:
            run.end()
        return time.monotonic() - started, run.seconds

    repeat = chosen.repeat
    cold, _ = ran("cold")
    print(f"{size} M rows × 10 → Bronze: first run of a process   {cold:6.2f} s", flush=True)
    for number in range(chosen.warm_up):
        ran(f"warming{number}")
    taken = [ran(f"warm{number}") for number in range(repeat)]
    median = statistics.median(seconds for seconds, _ in taken)
    steps = " ".join(f"{name} {seconds:.2f}" for name, seconds in taken[-1][1].items())
    each = ", ".join(f"{seconds:.2f}" for seconds, _ in taken)
    print(f"{size} M rows × 10 → Bronze: warm, median of {each}   {median:6.2f} s   ({steps})", flush=True)
    incremental = []
    for number in range(repeat):
        with psycopg.connect(url) as connection:
            connection.execute(CHANGE, (number,))
        seconds, steps_taken = ran("warm0")
        incremental.append(seconds)
        steps = " ".join(f"{name} {value:.2f}" for name, value in steps_taken.items())
    median = statistics.median(incremental)
    print(f"{size} M rows, 1 % changed: incremental, median of {repeat}   {median:6.2f} s   ({steps})", flush=True)
    quiet = statistics.median(ran("warm0")[0] for _ in range(repeat))
    print(f"{size} M rows, none changed: median of {repeat}              {quiet:6.2f} s", flush=True)
    with machine.Memory() as memory:
        ran("memory")
    print(f"{size} M rows: driver, Java and Python workers together, at their peak {memory.peak:.2f} GB", flush=True)


def dlt(url: str, size: int, chosen: argparse.Namespace) -> None:
    python = machine.peer_environment("dlt", PEER)
    started = time.monotonic()
    peer_times(python, url, 1)
    cold = time.monotonic() - started
    taken = peer_times(python, url, chosen.warm_up + chosen.repeat)[chosen.warm_up :]
    each = ", ".join(f"{seconds:.2f}" for seconds in taken)
    print(f"{size} M rows × 10 → dlt, Parquet: whole process          {cold:6.2f} s", flush=True)
    print(f"{size} M rows × 10 → dlt, Parquet: warm, median of {each}  {statistics.median(taken):6.2f} s\n", flush=True)


def peer_times(python: Path, url: str, repeat: int) -> list[float]:
    quiet = os.environ | {"RUNTIME__LOG_LEVEL": "ERROR", "RUNTIME__DLTHUB_TELEMETRY": "false"}
    done = subprocess.run(
        [python, Path(__file__).with_name("dlt_peer.py"), url, str(repeat)],
        env=quiet,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(each) for each in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    main()
