"""Values planted in cursors, keys and credentials, and looked for in everything that a run leaves behind."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.services.postgres import PostgresServer

TIDEMARK = str(Path(sys.executable).with_name("tidemark"))


@pytest.mark.service
@pytest.mark.timeout(600)
def test_no_value_of_state_key_or_credential_is_found_outside_the_lake(tmp_path: Path, pg: PostgresServer) -> None:
    cursor, later, key, password = (f"canary{secrets.token_hex(8)}{number}" for number in range(4))
    url = pg.new_database()
    user = f"reader_{secrets.token_hex(4)}"
    pg.execute(
        url,
        "CREATE TABLE orders (id text, position text)",
        f"INSERT INTO orders VALUES ('{key}', '{cursor}')",
        f"CREATE ROLE {user} LOGIN PASSWORD '{password}'",
        f"GRANT SELECT ON orders TO {user}",
    )
    stream = {"id": "shop.orders", "source": "orders", "key": ["id"], "cursor": "position", "cursor_type": "text"}
    manifest = {
        "connector": "shop", "kind": "sql", "settings": {"url": url.replace("postgres@", "").replace("postgres:@", "")},
        "credentials": {"user": "${CANARY_USER}", "password": "${CANARY_PASSWORD}"}, "streams": [stream],
    }  # fmt: skip
    events = tmp_path / "spark-events"
    events.mkdir()
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(manifest))
    (tmp_path / "tidemark.yaml").write_text(
        yaml.safe_dump(
            {"store": "state", "connectors": ["shop.yaml"], "tenants": ["t1"], "spark": {"config": logged}},
        )
    )
    environment = {k: v for k, v in os.environ.items() if k != "TIDEMARK_CONFIG"}
    environment |= {"CANARY_PASSWORD": password, "CANARY_USER": user}
    told = []

    def tidemark(*arguments: str) -> int:
        done = subprocess.run(
            [TIDEMARK, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        told.append(done.stdout + done.stderr)
        return done.returncode

    assert tidemark("ingest", "t1/shop") == 0, told
    pg.execute(url, f"INSERT INTO orders VALUES ('{key}', '{later}')")
    assert tidemark("ingest", "t1/shop", "--json") == 0, told
    assert tidemark("stream", "history", "t1/shop/shop.orders") == 0
    # A run that fails in its tasks, and one that is refused: their errors go everywhere.
    broken = "CREATE VIEW orders AS SELECT id, (position::int)::text AS position FROM kept"
    pg.execute(url, "ALTER TABLE orders RENAME TO kept", broken)
    pg.execute(url, f"GRANT SELECT ON orders TO {user}")
    assert tidemark("ingest", "t1/shop", "--full") == 1
    environment["CANARY_PASSWORD"] = password + "wrong"
    assert tidemark("ingest", "t1/shop") == 1

    lake = tmp_path / "state" / "lake"
    assert lake.is_dir()
    left = [path for path in tmp_path.rglob("*") if path.is_file() and lake not in path.parents]
    assert any(path.parent == events or events in path.parents for path in left)
    assert any(path.name == "control.db" for path in left)
    found = [
        (str(path.relative_to(tmp_path)), name)
        for path in left
        for name, canary in {"cursor": cursor, "later": later, "key": key, "password": password}.items()
        if canary.encode() in path.read_bytes()
    ]
    assert found == []
    for canary in (cursor, later, key, password):
        assert canary not in "".join(told)
