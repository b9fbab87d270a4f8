"""`make bench-catalog`: the catalogue's figures as a table, with machine and versions."""

import argparse
import os
from pathlib import Path

from benchmarks import machine


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalog")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is shown")
    parser.add_argument("--sizes", default="1,5,10", help="millions of columns")
    parser.add_argument("--no-source", action="store_true", help="leave PostgreSQL out")
    chosen = parser.parse_args()
    # Spark's Python workers import this package too.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    from benchmarks import merge, source

    print(machine.described(), flush=True)
    print(f"medians of {chosen.repeat} runs, warm session\n", flush=True)
    sizes = [int(size) for size in chosen.sizes.split(",") if size]
    staged: dict[int, float] = {}
    for size in sizes:
        taken = merge.measure(size * 20_000, chosen.repeat, mirror=size == 1)
        staged[size] = taken["stage + publish"]
        for name, seconds in taken.items():
            unit = "GB" if name == "peak GB" else "s"
            print(
                f"{size} M columns, 1,000 tables changed: {name.removesuffix(' GB'):<20} {seconds:6.2f} {unit}", flush=True
            )
    if len(staged) > 1:
        first, last = min(staged), max(staged)
        print(f"stage + publish at {last} M = {staged[last] / staged[first]:.2f} × that at {first} M\n", flush=True)
    if not chosen.no_source:
        taken = source.measure(chosen.repeat)
        for name, seconds in taken.items():
            print(f"PostgreSQL, 10,000 tables × 20 columns: {name:<34} {seconds:6.2f} s", flush=True)
        full, quiet = 3 * taken["one psycopg query of all columns"] + 8, 2 * taken["digest query"] + 3
        print(f"goal for the full run: {full:.2f} s; for a run without a change: {quiet:.2f} s", flush=True)


if __name__ == "__main__":
    main()
