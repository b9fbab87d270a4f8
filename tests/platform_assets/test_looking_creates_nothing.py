"""A command that only looks creates nothing: no database, no key, no folder."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.catalog.harness import SqliteSource
from tidemark.cli.app import build
from tidemark.errors import TidemarkError

pytestmark = pytest.mark.fast

STREAM = "default/shop/shop.orders"
LOOKING = [
    "status", "catalog status", "catalog history shop", "catalog marker shop", "catalog plan shop",
    "catalog explain shop main.orders", "stream status", f"stream history {STREAM}", f"stream history {STREAM} --moves",
    "stream list default", f"stream late {STREAM}", "model list", "model status",
    "model state silver.one", "model history silver.one", "model lineage silver.one", "metrics", "config check",
]  # fmt: skip


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything is configured and nothing was ever run; the folder of the state, which does not exist."""
    source = SqliteSource(tmp_path / "shop.db")
    source.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, changed TEXT)")
    streams = [{"id": "shop.orders", "key": ["id"], "cursor": "changed"}]
    manifest = {"connector": "shop", "kind": "sql", "settings": {"url": source.url}, "streams": streams}
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(manifest))
    (tmp_path / "models" / "silver").mkdir(parents=True)
    (tmp_path / "models" / "silver" / "one.sql").write_text("SELECT 1 AS one")
    shop = {"app": "sqlite", "id": "1", "url": source.url}
    given = {"store": "state", "connections": {"shop": shop}, "connectors": ["shop.yaml"], "models": "models"}
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump(given))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(tmp_path / "tidemark.yaml"))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return tmp_path / "state"


@pytest.mark.parametrize("command", LOOKING)
def test_a_command_that_only_looks_creates_nothing(fresh: Path, command: str) -> None:
    done = CliRunner().invoke(build(), command.split())
    assert done.exit_code == 0, done.output
    assert not fresh.exists(), list(fresh.rglob("*"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("catalog state shop", "nothing is published yet"),
        ("catalog check shop", "nothing is published yet"),
        (f"stream check {STREAM}", "nothing is published yet"),
        (f"stream show {STREAM}", "it was never read"),
    ],
)
def test_what_needs_a_run_says_that_there_was_none_and_creates_nothing(fresh: Path, command: str, words: str) -> None:
    done = CliRunner().invoke(build(), command.split())
    assert isinstance(done.exception, TidemarkError)
    assert words in str(done.exception)
    assert not fresh.exists(), list(fresh.rglob("*"))


def test_status_before_the_first_run_says_so(fresh: Path) -> None:
    done = CliRunner().invoke(build(), ["status"])
    assert "no runs yet" in done.stderr
    assert "catalog/shop" in done.stdout
