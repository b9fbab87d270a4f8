"""Commands that only read begin quickly: what they import is what they need."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tidemark.config import load_config
from tidemark.control import ControlDatabase

pytestmark = pytest.mark.fast

ENGINES = ("pyspark", "dagster", "pandas", "alembic", "boto3")
LAKE = ("pyiceberg", "pyarrow", "duckdb")
CONTROL = ("sqlalchemy", "sqlglot")

CODE = """
import sys
from tidemark.cli import app
sys.argv = ["tidemark", *sys.argv[2:]]
try:
    app.build()()
except SystemExit:
    pass
except app.TidemarkError:
    pass
print([name for name in {names!r} if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One connection, one stream and one model that were never run."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "models" / "silver").mkdir(parents=True)
    (folder / "models" / "silver" / "one.sql").write_text("SELECT 1 AS one")
    url = f"sqlite:///{folder}/shop.db"
    orders = {"id": "shop.orders", "key": ["id"], "cursor": "changed"}
    (folder / "shop.yaml").write_text(
        yaml.safe_dump({"connector": "shop", "kind": "sql", "settings": {"url": url}, "streams": [orders]})
    )
    connection = {"app": "sqlite", "id": "1", "url": url}
    document = {"store": "state", "connections": {"shop": connection}, "connectors": ["shop.yaml"], "models": "models"}
    (folder / "tidemark.yaml").write_text(yaml.safe_dump(document))
    ControlDatabase(load_config(folder / "tidemark.yaml").control).migrate()
    return folder


def imported(project: Path, names: tuple[str, ...], *arguments: str) -> str:
    """Which of the names a command has imported by its end."""
    command = [sys.executable, "-c", CODE.format(names=names), "tidemark", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1]


STREAM = "default/shop/shop.orders"
HELP = [("--help",), ("--version",), ("catalog", "--help"), ("stream", "run", "-h"), ("config", "schema")]
LEDGER = [
    ("status",), ("catalog", "status"), ("catalog", "history", "shop"), ("stream", "history", STREAM),
    ("stream", "history", STREAM, "--moves"), ("model", "history", "silver.one"), ("model", "list"),
    ("stream", "list", "default"), ("stream", "show", STREAM),
]  # fmt: skip
PUBLISHED = [
    ("catalog", "marker", "shop"),
    ("catalog", "state", "shop"),
    ("catalog", "diff", "shop", "latest", "latest"),
    ("model", "state"),
    ("config", "check"),  # asks the kinds of connectors for their settings
]


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_and_version_import_no_engine_and_no_database(project: Path, arguments: tuple[str, ...]) -> None:
    needed = ("duckdb",) if arguments == ("config", "schema") else ()  # it lists the source packs
    assert imported(project, tuple({*ENGINES, *LAKE, *CONTROL} - {*needed}), *arguments) == "[]"


@pytest.mark.parametrize("arguments", LEDGER, ids=" ".join)
def test_what_the_control_database_knows_imports_no_engine_and_no_lake(project: Path, arguments: tuple[str, ...]) -> None:
    assert imported(project, (*ENGINES, *LAKE), *arguments) == "[]"


@pytest.mark.parametrize("arguments", PUBLISHED, ids=" ".join)
def test_what_is_published_is_read_without_spark(project: Path, arguments: tuple[str, ...]) -> None:
    assert imported(project, ENGINES, *arguments) == "[]"
