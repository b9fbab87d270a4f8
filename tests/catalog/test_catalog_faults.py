"""kill -9 at every step boundary: the next run ends in the same state as an undisturbed one, and no stray file is left."""

import shutil
from pathlib import Path

import pytest

from spark_code.lake import without_checksum
from tests.catalog.harness import Catalog, SparkForTests, in_order
from tests.catalog.killing import KILLED, run_in_child

pytestmark = pytest.mark.fault

SETUP = (
    "CREATE TABLE still (a INTEGER, b INTEGER)",
    "CREATE TABLE changing (a INTEGER)",
    "CREATE TABLE going (a INTEGER)",
)
CHANGE = ("ALTER TABLE changing ADD COLUMN b TEXT", "DROP TABLE going", "CREATE TABLE coming (a INTEGER, b TEXT)")


def points_passed(catalog: Catalog, trace: Path) -> list[str]:
    assert run_in_child(catalog, TIDEMARK_FAULT_TRACE=str(trace)) == 0
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


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> Catalog:
    """A published state and a changed source, kept aside so that every kill starts from the same."""
    folder = tmp_path_factory.mktemp("prepared")
    catalog = Catalog.of_sqlite(folder / "here", spark)
    catalog.source.execute(*SETUP)
    catalog.run()
    catalog.source.execute(*CHANGE)
    catalog.platform.control.close()
    shutil.copytree(folder / "here", folder / "aside")
    return catalog


def restore(catalog: Catalog) -> None:
    catalog.platform.control.close()
    shutil.rmtree(catalog.folder)
    shutil.copytree(catalog.folder.with_name("aside"), catalog.folder)
    catalog.reopen()


@pytest.mark.timeout(1800)
def test_a_run_killed_at_any_point_is_put_right_by_the_next(
    undisturbed: tuple[Catalog, list[str]], prepared: Catalog
) -> None:
    wanted, points = undisturbed
    assert len(points) >= 25
    for point in points:
        restore(prepared)
        assert run_in_child(prepared, TIDEMARK_FAULT=point) == KILLED, point
        prepared.run()
        assert prepared.unlabelled() == wanted.unlabelled(), point
        assert prepared.mirror() == in_order(prepared.state()), point
        assert strays(prepared) == [], point


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
    unreferenced = [str(path) for path in lake.rglob("*") if path.is_file() and without_checksum(str(path)) not in known]
    branches = list(subject.lake.reader.branches(subject.layout.table))
    return [*odd, *temporary, *unreferenced, *branches]
