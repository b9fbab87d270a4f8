"""A project of models in a folder, as an author writes it."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml

from tidemark.config import load_config
from tidemark.errors import ConfigError
from tidemark.models.graph import Project, load_project

CARTS = "bronze.default.shop.shop_carts__latest"
LINES = "bronze.default.drops.drops_lines__latest"
MANIFESTS = [
    {
        "connector": "shop",
        "kind": "sql",
        "settings": {"url": "sqlite:///shop.db"},
        "streams": [{"id": "shop.carts", "key": ["cart_id"], "cursor": "changed"}],
    },
    {
        "connector": "drops",
        "kind": "files",
        "settings": {"path": "in"},
        "streams": [
            {
                "id": "drops.lines",
                "key": ["delivery", "line"],
                "schema_strategy": "fixed",
                "schema": {"delivery": "bigint", "line": "integer", "sku": "string", "price": "decimal(12,2)"},
            }
        ],
    },
]


class Folder:
    """Files of models, and what comes of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for manifest in MANIFESTS:
            (path / f"{manifest['connector']}.connector.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
        self.configure(models="models")
        (path / "models").mkdir()

    def configure(self, **config: Any) -> None:
        document = {"store": "state", "connectors": ["*.connector.yaml"], **config}
        (self.path / "tidemark.yaml").write_text(yaml.safe_dump(document))

    @property
    def config(self) -> Path:
        return self.path / "tidemark.yaml"

    def write(self, name: str, text: str) -> Path:
        path = self.path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def load(self) -> Project:
        """The project, if no model of it is broken."""
        project = load_project(load_config(self.config))
        if project.broken:
            raise ConfigError.of(each for broken in project.broken for each in broken.findings)
        return project
