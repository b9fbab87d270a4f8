"""What a figure was measured on."""

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("pyspark", "pyiceberg", "duckdb", "pyarrow", "psycopg", "dagster")


def described() -> str:
    memory = int(next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line))
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{os.cpu_count()} cores, {memory / 2**20:.0f} GiB, load {os.getloadavg()[0]:.1f} at start; "
        f"Python {platform.python_version()}; {packages}"
    )


@contextmanager
def timed(into: dict[str, list[float]], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    into.setdefault(name, []).append(time.perf_counter() - started)


def median_of(repeat: int, work: Callable[[], object]) -> float:
    taken: dict[str, list[float]] = {}
    for _ in range(repeat):
        with timed(taken, "work"):
            work()
    return statistics.median(taken["work"])


def peak_gigabytes() -> float:
    """The most memory that this process, its JVM and its Python workers held, each at its own peak: an upper bound."""

    def peak(pid: str) -> int:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return 0
        return int(next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), 0))

    tree, waiting = {str(os.getpid())}, [str(os.getpid())]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            for child in task.read_text().split():
                if child not in tree:
                    tree.add(child)
                    waiting.append(child)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (sum(peak(pid) for pid in tree - {str(os.getpid())}) + own) / 2**20
