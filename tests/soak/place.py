"""Where a soak happens: sources, S3, a control database and a mail server, all real, and a configuration over them."""

import os
import secrets
import sqlite3
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import yaml

from tests.services.line import Line, line_to
from tests.services.postgres import postgres
from tests.services.s3 import S3Server, seaweedfs
from tests.services.smtp import MailServer, smtp
from tests.services.spark_connect import spark_connect

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
# In the environment of every process of ours, servers left out, by which it is found.
TOKEN = "TIDEMARK_SOAK"
SUBJECTS = (
    "catalog/shop", "catalog/notes", "stream/default/shop/shop.carts", "stream/default/deliveries/deliveries.lines",
    "model/silver.carts", "model/silver.delivery_lines",
)  # fmt: skip
OFTEN = "*/2 * * * *"
UPKEEP = "*/5 * * * *"

SHOP = """
CREATE SCHEMA sales;
CREATE TABLE sales.cart (cart_id bigint PRIMARY KEY, customer text, amount numeric(12,2), updated_at timestamptz NOT NULL);
CREATE INDEX ON sales.cart (updated_at);
CREATE TABLE sales.customer (id bigint PRIMARY KEY, name varchar(80) NOT NULL);
CREATE VIEW sales.big AS SELECT * FROM sales.cart WHERE amount > 100;
"""
CARTS = {
    "connector": "shop",
    "kind": "sql",
    "settings": {"url": "${SHOP_URL}"},
    "schedule": OFTEN,
    "upkeep": UPKEEP,
    "streams": [
        {
            "id": "shop.carts", "source": "sales.cart", "key": ["cart_id"], "cursor": "updated_at", "safety_window": "PT30S",
        }
    ],
}  # fmt: skip
DELIVERIES: dict[str, Any] = {
    "connector": "deliveries",
    "kind": "files",
    "settings": {"path": "${DELIVERIES}", "pattern": "*.csv"},
    "watch": 5,
    # After failures in a row a sensor rests, for longer than anybody waits for a soak; a schedule does not.
    "schedule": OFTEN,
    "upkeep": UPKEEP,
    "streams": [
        {
            "id": "deliveries.lines", "key": ["delivery", "line"], "schema_strategy": "fixed",
            "schema": {"delivery": "bigint", "line": "integer", "sku": "string", "quantity": "integer"},
        }
    ],
}  # fmt: skip
MODELS = {
    "silver/carts.sql": f"""/* ---
description: Carts as they are now.
schedule: "{OFTEN}"
upkeep: "{UPKEEP}"
materialization: incremental
incremental:
  strategy: merge
  merge: {{unique_key: cart_id, filter_column: updated_at, lookback: 1 minute}}
  on_schema_change: append_new_columns
checks:
  - unique: cart_id
  - not_null: [cart_id, updated_at]
--- */
SELECT record.* FROM bronze.default.shop.shop_carts__latest
""",
    "silver/delivery_lines.sql": f"""/* ---
description: What was delivered, line by line.
schedule: "{OFTEN}"
upkeep: "{UPKEEP}"
materialization: incremental
incremental:
  strategy: delete_insert
  delete_insert: {{unique_key: delivery, filter_column: delivery}}
  on_schema_change: sync_all_columns
checks:
  - unique: [delivery, line]
--- */
SELECT record.delivery, record.line, record.sku, record.quantity FROM bronze.default.deliveries.deliveries_lines__latest
""",
}


@dataclass(frozen=True)
class Place:
    """A folder with a configuration, the servers that it names, and the lines to them."""

    folder: Path
    shop_url: str
    lines: dict[str, Line]
    mail: MailServer
    s3: S3Server
    spark: str
    environment: dict[str, str]

    @property
    def config(self) -> Path:
        return self.folder / "tidemark.yaml"

    @property
    def notes(self) -> Path:
        return self.folder / "notes.db"

    @property
    def deliveries(self) -> Path:
        return self.folder / "deliveries"

    @property
    def home(self) -> Path:
        return self.folder / "dagster"


@contextmanager
def a_place(folder: Path) -> Iterator[Place]:
    """Everything that a soak needs, started in a folder, and ended with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    with ExitStack() as stack:
        (folder / "postgres").mkdir()
        (folder / "postgres").chmod(0o755)
        server = stack.enter_context(postgres(folder / "postgres"))
        server.execute(server.url(), "CREATE DATABASE shop", "CREATE DATABASE control")
        with psycopg.connect(server.url("shop"), autocommit=True) as connection:
            connection.execute(SHOP)
        s3 = stack.enter_context(seaweedfs(folder / "s3"))
        mail = stack.enter_context(smtp())
        ports = {"source": server.port, "control": server.port, "S3": int(s3.endpoint.rpartition(":")[2])}
        lines = {name: stack.enter_context(line_to(port)) for name, port in ports.items()}
        environment = {
            **os.environ, **s3.environment,
            "PYTHONPATH": str(ROOT),
            "SHOP_URL": _through(server.url("shop"), lines["source"]),
            "DELIVERIES": str(folder / "deliveries"),
            "CONTROL_URL": _through(server.url("control"), lines["control"]),
            "TIDEMARK_CONFIG": str(folder / "tidemark.yaml"),
            "TIDEMARK_STATE_KEYS": "soak:" + b64encode(secrets.token_bytes(32)).decode(),
            "DAGSTER_HOME": str(folder / "dagster"),
        }  # fmt: skip
        with patch.dict(os.environ, environment):
            # Warm for every run, as on a host that is in use: a JVM for each would need most of two cores.
            spark = stack.enter_context(spark_connect(folder / "spark"))
        token = {TOKEN: secrets.token_hex(8)}
        place = Place(folder, server.url("shop"), lines, mail, s3, spark, environment | token)
        _configure(place)
        yield place


def _configure(place: Place) -> None:
    place.deliveries.mkdir()
    with sqlite3.connect(place.notes) as connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT)")
    connection.close()
    endpoint = f"http://127.0.0.1:{place.lines['S3'].port}"
    store = {"url": f"s3://{place.s3.new_bucket()}/tidemark", "endpoint": endpoint, "region": place.s3.region}
    email = {"host": "127.0.0.1", "port": place.mail.port, "from": "tidemark@example.com", "to": ["team@example.com"]}
    unattended = {"dagster-home": str(place.home), "email": email}
    _write(place, place.folder, store=store, control="${CONTROL_URL}", **unattended)


def beginning_anew(place: Place) -> Place:
    """The same sources under a configuration of their own that knows nothing yet."""
    folder = place.folder / "fresh"
    folder.mkdir()
    _write(place, folder, store="store")
    own = {"TIDEMARK_CONFIG": str(folder / "tidemark.yaml"), "DAGSTER_HOME": str(folder / "dagster")}
    return replace(place, folder=folder, environment=place.environment | own)


def _write(place: Place, folder: Path, **settings: Any) -> None:
    common = {"incremental-extraction": True, "max-removed-percent": 100, "watch": 5, "schedule": OFTEN, "upkeep": UPKEEP}
    connections = {
        "shop": {"app": "postgresql", "id": "1700000001", "url": "${SHOP_URL}", **common},
        "notes": {"app": "sqlite", "id": "1700000002", "url": f"sqlite:///{place.notes}", **common},
    }
    files = {"connectors/shop.yaml": yaml.safe_dump(CARTS), "connectors/deliveries.yaml": yaml.safe_dump(DELIVERIES)}
    for name, text in (files | {f"models/{name}": text for name, text in MODELS.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    document = {"connectors": ["connectors/*.yaml"], "models": "models", "connections": connections, **settings}
    document["spark"] = {"remote": place.spark}
    (folder / "tidemark.yaml").write_text(yaml.safe_dump(document))


def _through(url: str, line: Line) -> str:
    before, _, database = url.rpartition("/")
    return f"{before.rpartition(':')[0]}:{line.port}/{database}"
