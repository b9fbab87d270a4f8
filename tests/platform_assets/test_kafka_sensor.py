"""The sensor of a topic: it asks the broker how far the partitions go, and starts a run when they go further."""

import json
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from dagster import DagsterInstance, RunRequest, build_sensor_context

from platform_assets.connectors.definitions import ingest_definitions
from resources.connectors import ConnectorsResource
from resources.platform import PlatformResource
from tests.services.kafka import KafkaServer
from tidemark.config import load_config
from tidemark.connectors.contract import CheckpointConnector
from tidemark.connectors.kinds.kafka import KafkaConnector

pytestmark = pytest.mark.service


def test_a_sensor_asks_for_a_run_when_messages_wait_and_reads_none(
    tmp_path: Path, broker: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.new_topic(partitions=2)
    document = {"store": "state", "connectors": ["*.connector.yaml"], "tenants": ["t1", "t2"]}
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump(document))
    streams = [{"id": "events", "source": topic, "key": ["id"]}]
    manifest = {
        "connector": "bus",
        "kind": "kafka",
        "watch": 30,
        "settings": {"brokers": broker.brokers},
        "streams": streams,
    }
    (tmp_path / "bus.connector.yaml").write_text(yaml.safe_dump(manifest))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(tmp_path / "tidemark.yaml"))
    (arrivals,) = ingest_definitions(load_config(tmp_path / "tidemark.yaml")).sensors or []
    connectors = ConnectorsResource(platform=PlatformResource())
    monkeypatch.setattr(KafkaConnector, "read", lambda *_, **__: pytest.fail("a tick of a sensor read messages"))

    def asked() -> list[str | None]:
        with (
            DagsterInstance.ephemeral() as instance,
            build_sensor_context(instance, resources={"connectors": connectors}) as context,
        ):
            return [each.partition_key for each in arrivals(context) if isinstance(each, RunRequest)]  # type: ignore[call-overload]

    def put(count: int) -> None:
        producer = Producer({"bootstrap.servers": broker.brokers, "log_level": 0})
        for id in range(count):
            producer.produce(topic, json.dumps({"id": id}).encode(), partition=id % 2)
        assert producer.flush(30) == 0

    def move(tenant: str, version: int | None) -> None:
        """The state of a run that has read all there is."""
        subject = connectors.subject(tenant, "bus", "events")
        with subject.connector as connector:
            assert isinstance(connector, CheckpointConnector)
            before = subject.marks.get(subject.address)
            checkpoint = before.value if before else None
            value = connector.advanced(subject.stream, checkpoint, connector.pending(subject.stream, checkpoint, 2))
        subject.marks.move(
            subject.address, version, value, field=subject.stream.cursor_field,
            run_id=f"r{version}", actor="a", reason="read",
        )  # fmt: skip

    assert asked() == ["t1", "t2"]  # nothing was ever read
    put(3)
    for tenant in ("t1", "t2"):
        move(tenant, None)
    assert asked() == []
    put(1)
    assert asked() == ["t1", "t2"]
    move("t2", 1)
    assert asked() == ["t1"]
