"""Every kind through the test kit, on a real source; and a kind that keeps no rule."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer

from spark_code.connectors.kit import StreamKit, Verdict
from spark_code.platform import Platform
from tests.catalog.harness import SparkForTests
from tests.connectors.growing import Growing
from tests.services.cap import CapServer
from tests.services.kafka import KafkaServer
from tests.services.mariadb import MariadbServer
from tests.services.postgres import PostgresServer
from tests.services.salesforce_soql import StubField
from tests.services.salesforce_stub import salesforce_stub
from tidemark.config import load_config
from tidemark.connectors.contract import Slice
from tidemark.connectors.manifest import load_manifest
from tidemark.connectors.stream import StreamSpec

pytestmark = pytest.mark.service

ROWS = 40
RULES = {
    "describes itself",
    "full cycle",
    "respects the input state and reads nothing older",
    "returns the greatest cursor of all pages",
    "pages of any size hold the same records",
    "lands nothing twice",
    "applies the safety window",
    "incremental cycle",
    "retry cycle",
    "faults that last are told by name",
    "faults that pass are put right",
}
Judge = Callable[..., dict[str, Verdict]]


@pytest.fixture
def judged(tmp_path: Path, spark: SparkForTests) -> Judge:
    """Puts a stream to the test and gives the verdicts by rule."""

    def judge(kind: str, settings: dict[str, Any], credentials: dict[str, str] | None = None, **stream: Any) -> Any:
        manifest = {
            "connector": "shop", "kind": kind, "settings": settings, "streams": [{"id": "shop.orders", **stream}],
            **({"credentials": credentials} if credentials else {}),
        }  # fmt: skip
        (tmp_path / "shop.yaml").write_text(yaml.safe_dump(manifest))
        (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": str(tmp_path / "store")}))
        described = load_manifest(tmp_path / "shop.yaml")
        platform = Platform(load_config(tmp_path / "tidemark.yaml"), start=spark)
        verdicts = {each.rule: each for each in StreamKit(platform, described, described.streams[0]).verdicts()}
        assert verdicts.keys() == RULES
        return verdicts

    return judge


def failures(verdicts: dict[str, Verdict]) -> list[Verdict]:
    return [each for each in verdicts.values() if each.passed is False]


def not_applicable(verdicts: dict[str, Verdict]) -> set[str]:
    return {each.rule for each in verdicts.values() if each.passed is None}


PROXY = {"faults that last are told by name", "faults that pass are put right"}
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, item varchar(20), moment {time})"


def values() -> str:
    # Every tick three times.
    return ", ".join(f"({id}, 'item {id}', '2026-01-01 10:00:{id // 3:02}.250')" for id in range(ROWS))


def test_postgresql_passes(judged: Judge, pg: PostgresServer) -> None:
    url = pg.new_database()
    pg.execute(url, ORDERS.format(time="timestamptz"), f"INSERT INTO orders VALUES {values()}")
    verdicts = judged("sql", {"url": url}, source="orders", key=["id"], cursor="moment")
    assert failures(verdicts) == []
    assert not_applicable(verdicts) == set()


def test_mariadb_passes(judged: Judge, maria: MariadbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    database = maria.new_database()
    maria.execute(database, ORDERS.format(time="timestamp(3)"), f"INSERT INTO orders VALUES {values()}")
    monkeypatch.setenv("MARIADB_URL", maria.url(database))
    verdicts = judged("sql", {"url": "${MARIADB_URL}"}, source="orders", key=["id"], cursor="moment")
    assert failures(verdicts) == []
    assert not_applicable(verdicts) == set()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_databases_in_a_file_pass(judged: Judge, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "shop.db"
    rows = values().replace("2026-01-01 10", "2026-01-01T10").replace(".250'", ".250Z'")
    with closing(sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))) as db:
        db.execute(ORDERS.format(time="datetime" if kind == "sqlite" else "timestamptz"))
        db.execute(f"INSERT INTO orders VALUES {rows}")
        db.commit()
    verdicts = judged("sql", {"url": f"{kind}:///{path}"}, source="orders", key=["id"], cursor="moment")
    assert failures(verdicts) == []
    assert not_applicable(verdicts) == PROXY


def test_files_pass(judged: Judge, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        lines = [json.dumps({"id": id, "item": f"item {id}"}) for id in range(number * 10, number * 10 + 10)]
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
    verdicts = judged("files", {"path": str(folder)}, key=["id"])
    assert failures(verdicts) == []
    assert not_applicable(verdicts) == {"applies the safety window", *PROXY}


def test_odata_passes(judged: Judge, cap_server: CapServer) -> None:
    cap_server.execute(
        "DELETE FROM data_Orders",
        *(
            f"INSERT INTO data_Orders (id, item, updated_at) VALUES ({id}, 'i{id}', '2026-01-01T10:00:{id // 3:02}.250Z')"
            for id in range(ROWS)
        ),
    )
    verdicts = judged("odata", {"url": cap_server.shop}, source="Orders", key=["id"], cursor="updated_at")
    assert failures(verdicts) == []
    assert not_applicable(verdicts) == set()


def test_salesforce_passes(judged: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tls").mkdir()
    with salesforce_stub(tmp_path / "tls") as stub:
        stub.batch = 9
        stub.make("Account", [StubField("Name", "string")])
        for number in range(ROWS):
            stub.add("Account", number, f"2026-01-01T10:00:{number // 3:02}.000Z", Name=f"account {number}")
        monkeypatch.setenv("SALESFORCE_SESSION", stub.session_id)
        verdicts = judged(
            "salesforce", {"instance": stub.host, "ca_file": stub.ca_file}, {"session_id": "${SALESFORCE_SESSION}"},
            source="Account", key=["Id"], cursor="SystemModstamp",
        )  # fmt: skip
    assert failures(verdicts) == []
    assert not_applicable(verdicts) == PROXY


def test_cdc_passes(judged: Judge, logical_pg: PostgresServer) -> None:
    url = logical_pg.new_database()
    logical_pg.execute(url, ORDERS.format(time="timestamptz"), f"INSERT INTO orders VALUES {values()}")
    verdicts = judged("cdc", {"url": url}, source="orders", key=["id"])
    assert failures(verdicts) == []
    assert not_applicable(verdicts) == {"applies the safety window", "pages of any size hold the same records"}


def test_kafka_passes(judged: Judge, broker: KafkaServer) -> None:
    topic = broker.new_topic(partitions=3)
    producer = Producer({"bootstrap.servers": broker.brokers, "log_level": 0})
    for id in range(ROWS):
        producer.produce(topic, json.dumps({"id": id, "item": f"item {id}"}).encode(), str(id).encode())
    assert producer.flush(30) == 0
    verdicts = judged("kafka", {"brokers": broker.brokers}, source=topic, key=["id"])
    assert failures(verdicts) == []
    assert not_applicable(verdicts) == {
        "applies the safety window", "pages of any size hold the same records", *PROXY,
    }  # fmt: skip


class Careless(Growing):
    """Reads everything, whatever the window; loses a record in small pages; makes up another each time."""

    kind = "careless"

    def discover(self, stream: StreamSpec) -> pa.Schema:
        return pa.schema([("id", pa.int64()), ("n", pa.int64())])

    def slices(self, stream: StreamSpec, window: Any, parallel: int) -> list[Slice]:
        return [Slice(0)]

    def now(self, stream: StreamSpec) -> Any:
        return stream.parse_cursor(100)

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        counted = Path(self.settings["path"]).with_suffix(".count")
        number = int(counted.read_text()) + 1 if counted.exists() else 0
        counted.write_text(str(number))
        records = [{"id": id, "n": id} for id in range(20)] + [{"id": 1000 + number, "n": 5}]
        yield pa.RecordBatch.from_pylist(records[1:] if page_size < 10 else records)


def test_a_connector_that_keeps_no_rule_is_found_out(judged: Judge, tmp_path: Path) -> None:
    settings = {"path": str(tmp_path / "records.json")}
    (tmp_path / "records.json").write_text(json.dumps([{"id": 1}]))
    verdicts = judged(Careless.kind, settings, key=["id"], cursor="n", cursor_type="integer")
    assert {each.rule for each in failures(verdicts)} >= {
        "full cycle",
        "respects the input state and reads nothing older",
        "pages of any size hold the same records",
        "lands nothing twice",
    }
