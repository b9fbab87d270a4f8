"""`make bench-memory`: what the driver holds while it lists 1 M tables, and while a schema of 1 M columns is renamed.

The source is synthetic, everything behind its reader is the real run: Dagster's job, Spark with a Java heap of 2 GB, lake,
checks, diff, mirror, marker. Each scenario has a process of its own; its peak is what the kernel says of it.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Literal

import yaml

from tidemark.catalog.packs.base import (
    ColumnFacts,
    DatabaseFacts,
    Listing,
    PackedTables,
    SchemaFacts,
    SourcePack,
    TableFacts,
    TableReading,
    TableRef,
    database_file,
)
from tidemark.catalog.scope import Scope

LIMIT_MB = 2048
HEAP = "2g"


class SyntheticPack(SourcePack):
    """`synthetic:////file`: a JSON file that says how many tables of which width are in which schema."""

    app = "synthetic"
    signal: ClassVar[Literal["digest", "clock"]] = "digest"
    schemes = ("synthetic",)

    @staticmethod
    def target_of(url: str) -> str:
        return str(database_file(url))

    def _said(self) -> tuple[str, int, int]:
        said = json.loads(Path(self.target).read_text())
        return said["schema"], said["tables"], said["width"]

    def listing(self, scope: Scope, since: datetime | None = None) -> Listing:
        del scope, since
        schema, tables, width = self._said()
        return Listing(
            identity="synthetic",
            clock=datetime.now(UTC),
            databases=(DatabaseFacts("db", None),),
            schemas=(SchemaFacts("db", schema, None, listed=True, why_not=None),),
            tables=PackedTables(_table(schema, f"table_{number:08d}", width) for number in range(tables)),
        )

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        _, _, width = self._said()
        columns = tuple(
            ColumnFacts(f"column_{n}", n, "character varying(255)", 255, None, None, True, None, None, None, ())
            for n in range(1, width + 1)
        )
        for table in tables:
            yield table, TableReading(_table(table.schema, table.name, width), columns)


def _table(schema: str, name: str, width: int) -> TableFacts:
    number = int(name.rpartition("_")[2])
    return TableFacts("db", schema, name, "table", str(16384 + number), f"{number:016x}-{width:016x}", None, None, width)


def measure(scenario: str, tables: int, width: int) -> None:
    """One scenario, in this process; prints each run and what was held at the peak so far."""
    from benchmarks.machine import peak_of
    from platform_assets.catalog.launch import launch
    from platform_assets.instance import open_instance
    from tidemark.config import load_config

    folder = Path(tempfile.mkdtemp(prefix="tidemark-bench-"))
    try:
        source = folder / "source.json"
        shop = {"app": "synthetic", "id": "1", "url": f"synthetic:///{source}", "incremental-extraction": True}
        document = {
            "store": str(folder / "state"),
            "connections": {"shop": shop},
            "spark": {"config": {"spark.driver.memory": HEAP}},
        }
        (folder / "tidemark.yaml").write_text(yaml.safe_dump(document))
        config = load_config(folder / "tidemark.yaml")
        runs = {"a listing": ["before", "before"], "a renamed schema": ["before", "after"]}[scenario]
        with open_instance(config) as instance:
            for number, schema in enumerate(runs, start=1):
                source.write_text(json.dumps({"schema": schema, "tables": tables, "width": width}))
                began = time.perf_counter()
                launch(config, instance, "shop", full=False, allow_removals=True)
                taken, own = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    f"{scenario}, {tables:,} tables × {width}: run {number} {taken:6.1f} s, Python's peak {own:6.0f} MB, "
                    f"Java's peak {peak_of('java'):6.0f} MB{'' if own <= LIMIT_MB else '  OVER THE LIMIT'}",
                    flush=True,
                )
        if own > LIMIT_MB:
            sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalog_memory")
    parser.add_argument("--tables", type=int, default=1_000_000, help="tables that are listed")
    parser.add_argument("--columns", type=int, default=1_000_000, help="columns of the schema that is renamed")
    parser.add_argument("--only", help="one scenario, in this process")
    chosen = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)  # Spark's Python workers import this module too
    scenarios = {"a listing": (chosen.tables, 1), "a renamed schema": (chosen.columns // 20, 20)}
    if chosen.only:
        # By its own name: what tasks are sent must not be of `__main__`.
        from benchmarks import catalog_memory

        catalog_memory.measure(chosen.only, *scenarios[chosen.only])
        return
    from benchmarks import machine

    print(machine.described(), flush=True)
    sizes = ["--tables", str(chosen.tables), "--columns", str(chosen.columns)]
    codes = [
        subprocess.run([sys.executable, "-m", "benchmarks.catalog_memory", "--only", each, *sizes], check=False).returncode
        for each in scenarios
    ]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    main()
