"""A configuration file that Dagster's definitions are loaded with."""

from pathlib import Path

import pytest
import yaml

from tests.catalog.harness import SqliteSource


@pytest.fixture
def source(tmp_path: Path) -> SqliteSource:
    source = SqliteSource(tmp_path / "shop.db")
    source.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
    return source


@pytest.fixture
def configured(tmp_path: Path, source: SqliteSource, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, with one connection `shop`; `TIDEMARK_CONFIG` names it."""
    document = {
        "store": str(tmp_path / "store"),
        "connections": {"shop": {"app": "sqlite", "id": "1700000000", "url": source.url, "schedule": "0 * * * *"}},
    }
    path = tmp_path / "tidemark.yaml"
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(path))
    return path
