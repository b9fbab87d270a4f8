"""What all tests share: servers once per process, one Spark session per process."""

import gc
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

# A busy machine is no fault of what is tested.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

ROOT = Path(__file__).parent.parent
# Files that take minutes, the longest first: begun last, one of them keeps the other processes waiting.
LONG = [
    "test_schema_matrix", "test_catalog_faults", "test_commands", "test_model_faults", "test_model_commands",
    "test_stream_canaries", "test_kills_elsewhere", "test_stream_faults", "test_stream_rounds", "test_catalog_ddl",
    "test_models_web_ui", "test_catalog_elsewhere", "test_catalog_concurrency", "test_connector_kit",
    "test_catalog_bad_days", "test_web_ui", "test_model_edges", "test_model_settled", "test_catalog_runs",
    "test_pack_ddl", "test_sql_streams", "test_cluster",
]  # fmt: skip
# Open files of a test process from which on what is garbage is closed.
MANY_FILES = 200
sys.path.insert(0, str(ROOT))
# Spark's Python workers and child processes import test code too, and need the S3 server's credentials from the start.
os.environ["PYTHONPATH"] = str(ROOT)
os.environ["AWS_ACCESS_KEY_ID"] = "tidemark-test"
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", secrets.token_hex(16))


def refuse_to_fork(*_: object) -> NoReturn:
    """A fork copies none of the threads of Kafka, DuckDB, Arrow, gRPC and Java, but everything that waits for them."""
    raise RuntimeError("a test process has threads and must not be forked: use in_child of tests/services/children.py")


# Popen forks by itself, and replaces the process at once.
os.fork = os.forkpty = refuse_to_fork

from tests.catalog.harness import Catalog, SparkForTests  # noqa: E402
from tests.services.cap import CapServer, cap  # noqa: E402
from tests.services.kafka import KafkaServer, kafka  # noqa: E402
from tests.services.mariadb import MariadbServer, mariadb  # noqa: E402
from tests.services.postgres import PostgresServer, logical_postgres, postgres  # noqa: E402
from tests.services.s3 import S3Server, seaweedfs  # noqa: E402
from tests.services.scheduling import pytest_xdist_make_scheduler  # noqa: E402, F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is said at once: the whole run takes long, and its summary comes last."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        why = [
            line for line in report.longreprtext.splitlines() if line.startswith("E ")
        ] or report.longreprtext.splitlines()
        sys.stderr.write("\n".join(["", f"FAILED in {report.when}: {report.nodeid}", *why[:6], ""]))


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """What a test puts into the environment is gone when it ends."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True, scope="module")
def few_open_files() -> Iterator[None]:
    """Tests open hundreds of platforms in one process, and leave closing to the garbage collector, which seldom looks at
    old objects. Py4J waits by `select`, which knows no descriptor above 1,023."""
    yield
    if len(os.listdir("/dev/fd")) > MANY_FILES:
        gc.collect()


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """A folder that server processes of another user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def pg(server_folder: Path) -> Iterator[PostgresServer]:
    folder = server_folder / "postgres"
    folder.mkdir()
    folder.chmod(0o755)
    with postgres(folder) as server:
        yield server


@pytest.fixture(scope="session")
def maria(server_folder: Path) -> Iterator[MariadbServer]:
    folder = server_folder / "mariadb"
    folder.mkdir()
    folder.chmod(0o755)
    with mariadb(folder) as server:
        yield server


@pytest.fixture(scope="session")
def cap_server(server_folder: Path) -> Iterator[CapServer]:
    with cap(server_folder / "cap") as server:
        yield server


@pytest.fixture(scope="session")
def logical_pg(server_folder: Path) -> Iterator[PostgresServer]:
    """A server of its own, whose log can be decoded."""
    folder = server_folder / "logical-postgres"
    folder.mkdir()
    folder.chmod(0o755)
    with logical_postgres(folder) as server:
        yield server


@pytest.fixture(scope="session")
def s3(server_folder: Path) -> Iterator[S3Server]:
    folder = server_folder / "s3"
    folder.mkdir()
    with seaweedfs(folder) as server:
        yield server


@pytest.fixture(scope="session")
def broker(server_folder: Path) -> Iterator[KafkaServer]:
    folder = server_folder / "kafka"
    folder.mkdir()
    with kafka(folder) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkForTests]:
    sessions = SparkForTests()
    yield sessions
    sessions.stop()


@pytest.fixture
def catalog(tmp_path: Path, spark: SparkForTests) -> Catalog:
    """A catalogue of an empty SQLite database, in an empty folder."""
    return Catalog.of_sqlite(tmp_path, spark)
