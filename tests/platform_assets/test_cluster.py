"""On a cluster all is as on one machine: executors are processes of their own, and see only what is sent to them."""

from pathlib import Path

import pytest
import yaml

from tests.platform_assets.test_commands import Shell
from tests.services.spark_cluster import spark_cluster

MODEL = """/* ---
materialization: incremental
incremental: {strategy: merge, merge: {unique_key: id, filter_column: changed}}
--- */
SELECT record.id, record.changed FROM bronze.default.shop.shop_orders__latest
"""


@pytest.mark.fault
def test_a_catalogue_a_stream_and_a_model_on_a_cluster(tmp_path: Path) -> None:
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
        (shell.folder / "models" / "silver").mkdir(parents=True)
        (shell.folder / "models" / "silver" / "orders.sql").write_text(MODEL)
        shop = {"app": "sqlite", "id": "1", "url": shell.source.url, "incremental-extraction": True}
        shell.write(connections={"shop": shop}, connectors=["*.connector.yaml"], models={"path": "models"})

        assert shell.json("run", "shop")["labels"]["CREATED"] == 1
        (first,) = shell.json("ingest", "default/shop")
        assert (first["status"], first["landed"]) == ("published", 2)
        (made,) = shell.json("model", "run", "silver.orders")
        assert (made["status"], made["rows"]) == ("published", {"inserted": 2})
        shell.source.execute("INSERT INTO orders VALUES (3, '2026-01-03T10:00:00Z')")
        assert shell.json("ingest", "default/shop/shop.orders")["landed"] == 1
        (merged,) = shell.json("model", "run", "silver.orders")
        assert merged["rows"] == {"inserted": 1, "unchanged": 1}
        logs = list((tmp_path / "cluster" / "work").glob("app-*/*/stderr"))
        assert len(logs) >= 5, "each command had an executor on the cluster"
