"""kill -9 at every step boundary: the next run ends in the same state as an undisturbed one, and no stray file is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.catalog.harness import Catalog, SparkForTests

pytestmark = pytest.mark.fault

SETUP = (
    "CREATE TABLE still (a INTEGER, b INTEGER)",
    "CREATE TABLE changing (a INTEGER)",
    "CREATE TABLE going (a INTEGER)",
)
CHANGE = ("ALTER TABLE changing ADD COLUMN b TEXT", "DROP TABLE going", "CREATE TABLE coming (a INTEGER, b TEXT)")


def child(catalog: Catalog, **faults: str) -> "subprocess.CompletedProcess[str]":
    """`tidemark run shop` in a process of its own."""
    command = [str(Path(sys.executable).with_name("tidemark")), "run", "shop", "--json"]
    environment = os.environ | {"TIDEMARK_CONFIG": str(catalog.platform.config.path)} | faults
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def points_passed(catalog: Catalog, trace: Path) -> list[str]:
    done = child(catalog, TIDEMARK_FAULT_TRACE=str(trace))
    assert done.returncode == 0, done.stderr
    return list(dict.fromkeys(trace.read_text().split()))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> tuple[Catalog, list[str]]:
    """What an incremental run makes when nothing happens to it, and every point it passes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    catalog = Catalog.of_sqlite(folder, spark)
    catalog.source.execute(*SETUP)
    catalog.run()
    catalog.source.execute(*CHANGE)
    return catalog, points_passed(catalog, folder / "trace")


def test_a_run_killed_at_any_point_is_put_right_by_the_next(
    undisturbed: tuple[Catalog, list[str]], tmp_path: Path, spark: SparkForTests
) -> None:
    wanted, points = undisturbed
    assert len(points) >= 25
    for number, point in enumerate(points):
        catalog = Catalog.of_sqlite(tmp_path / str(number), spark)
        catalog.source.execute(*SETUP)
        catalog.run()
        catalog.source.execute(*CHANGE)
        killed = child(catalog, TIDEMARK_FAULT=point)
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        catalog.run()
        assert catalog.unlabelled() == wanted.unlabelled(), point
        assert [e["attributes"] for e in catalog.mirror()] == [e["attributes"] for e in catalog.state_by_kind()], point
        assert strays(catalog) == [], point


def strays(catalog: Catalog) -> list[str]:
    """Objects that no published run, manifest or snapshot accounts for."""
    subject = catalog.subject
    runs = {
        r.run_id for r in subject.control.runs.history("catalog", subject.name) if r.status in ("published", "unchanged")
    }
    odd = [key for key in catalog.objects() if "/runs/" in key and key.split("/runs/")[1].split("/")[0] not in runs]
    temporary = [str(path) for path in Path(catalog.platform.store.root).rglob("*") if ".tmp" in path.name]
    known = catalog.platform.lake.reader.referenced(subject.layout.table)
    lake = Path(subject.lake.reader.settings.warehouse) / subject.layout.table.replace(".", "/")
    unreferenced = [str(path) for path in lake.rglob("*") if path.is_file() and str(path) not in known]
    branches = list(subject.lake.reader.branches(subject.layout.table))
    return [*odd, *temporary, *unreferenced, *branches]
