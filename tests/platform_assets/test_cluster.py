"""On a cluster all is as on one machine: executors are processes of their own, and see only what is sent to them."""

from pathlib import Path

import pytest
import yaml

from tests.platform_assets.test_commands import Shell
from tests.services.spark_cluster import spark_cluster


@pytest.mark.fault
def test_a_stream_lands_by_tasks_on_a_cluster(tmp_path: Path) -> None:
    with spark_cluster(tmp_path / "cluster") as master:
        shell = Shell(tmp_path / "shell")
        shell.spark = {"spark": {"master": master}}
        shell.source.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, changed DATETIME)",
            "INSERT INTO orders VALUES (1, '2026-01-01T10:00:00Z'), (2, '2026-01-02T10:00:00Z')",
        )
        orders = {"id": "shop.orders", "key": ["id"], "cursor": "changed", "safety_window": "PT1H"}
        manifest = {"connector": "shop", "kind": "sql", "settings": {"url": shell.source.url}, "streams": [orders]}
        (shell.folder / "shop.connector.yaml").write_text(yaml.safe_dump(manifest))
        shell.write(connectors=["*.connector.yaml"])

        (landed,) = shell.json("stream", "run", "default/shop")
        assert (landed["status"], landed["rows"]["landed"]) == ("published", 2)
        logs = list((tmp_path / "cluster" / "work").glob("app-*/*/stderr"))
        assert logs, "its executor ran on the cluster"
