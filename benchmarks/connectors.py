"""`make bench-connectors`: PostgreSQL → Bronze next to dlt in one run, with machine and versions."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
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
        "--warm-up", type=int, default=20, help="runs before those, while Java still compiles; of dlt as many"
    )
    parser.add_argument(
        "--sizes", default="1,4", help="millions of rows: the first one next to dlt, of the others only once"
    )
    parser.add_argument("--ours", metavar="URL", help=argparse.SUPPRESS)  # a child: this size alone, with a Java of its own
    parser.add_argument("--beside", metavar="PYTHON", help=argparse.SUPPRESS)  # where dlt is, to take turns with it
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
                if place == 0:
                    asked["--beside"] = machine.peer_environment("dlt", PEER)
                words = [str(word) for pair in asked.items() for word in pair]
                subprocess.run([sys.executable, "-m", "benchmarks.connectors", *words], check=True)


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
    # In turns: the machine's own speed moves within minutes.
    with Peer(chosen.beside, url) if chosen.beside else nullcontext() as peer:
        if peer:
            print(f"{size} M rows × 10 → dlt, Parquet: first run of a process {peer.load():6.2f} s", flush=True)
        taken, theirs = [], []
        for number in range(chosen.warm_up + repeat):
            taken.append(ran(f"warm{number}"))
            theirs += [peer.load()] if peer else []
    steps = " ".join(f"{name} {seconds:.2f}" for name, seconds in taken[-1][1].items())
    told("→ Bronze", size, [seconds for seconds, _ in taken[-repeat:]], steps)
    if theirs:
        told("→ dlt, Parquet", size, theirs[-repeat:])
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


def told(what: str, size: int, seconds: list[float], steps: str = "") -> None:
    each = ", ".join(f"{each:.2f}" for each in seconds)
    words = f"   ({steps})" if steps else ""
    print(f"{size} M rows × 10 {what}: warm, median of {each}   {statistics.median(seconds):6.2f} s{words}", flush=True)


class Peer:
    """dlt in a process of its own, which loads the table on request."""

    def __init__(self, python: str, url: str) -> None:
        quiet = os.environ | {"RUNTIME__LOG_LEVEL": "ERROR", "RUNTIME__DLTHUB_TELEMETRY": "false"}
        command = [python, str(Path(__file__).with_name("dlt_peer.py")), url]
        self._started = time.monotonic()
        self._process = subprocess.Popen(command, env=quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def load(self) -> float:
        """Seconds for one load; of the first, since the process was begun."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("load\n")
        self._process.stdin.flush()
        seconds = float(self._process.stdout.readline())
        started, self._started = self._started, 0.0
        return time.monotonic() - started if started else seconds

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


if __name__ == "__main__":
    main()
