"""What a figure was measured on."""

import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


class Memory:
    """Watches how much memory this process, its JVM and its Python workers hold together while something is measured.

    Pages that processes share are counted once (PSS), otherwise every forked worker would be as large as its parent.
    """

    def __init__(self, every: float = 0.2) -> None:
        self.peak = 0.0
        self._every = every
        self._stop = threading.Event()

    def __enter__(self) -> "Memory":
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self.peak = max(self.peak, sum(_held(pid) for pid in _tree(str(os.getpid()))) / 2**20)


def _tree(root: str) -> set[str]:
    found, waiting = {root}, [root]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(OSError):
                new = set(task.read_text().split()) - found
                found |= new
                waiting += new
    return found


def _held(pid: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return int(next((line.split()[1] for line in lines if line.startswith("Pss:")), 0))


def peer_environment(name: str, packages: list[str]) -> Path:
    """The Python of a peer's own environment, which is made once."""
    folder = Path(__file__).parent.parent / ".tidemark" / f"bench-{name}"
    python = folder / "bin" / "python"
    if not python.exists():
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "-q", folder], check=True)
        subprocess.run([uv, "pip", "install", "-q", "-p", python, *packages], check=True)
    return python


def peak_of(command: str) -> float:
    """The most memory, in MB, that a child of this process with that command held at once, by the kernel's account."""
    peaks = [0]
    for pid in _tree(str(os.getpid())):
        with suppress(OSError):
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            if status["Name"].strip() == command:
                peaks.append(int(status["VmHWM"].split()[0]))
    return max(peaks) / 1024
