"""Streams in Dagster: two assets each, five blocking checks between them, a partition per tenant."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance, Definitions, RunRequest, build_sensor_context
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy

from platform_assets.connectors.definitions import ingest_definitions
from resources.connectors import ConnectorsResource
from resources.platform import PlatformResource
from tidemark.config import load_config
from tidemark.connectors.kinds.files import FilesConnector
from tidemark.connectors.verification import CHECKS
from tidemark.errors import ConfigError, UsageError

pytestmark = pytest.mark.fast

MANIFEST = {
    "connector": "shop-eu",
    "kind": "sql",
    "settings": {"url": "sqlite:///shop.db"},
    "schedule": "*/15 * * * *",
    "streams": [{"id": "shop.orders", "key": ["id"], "cursor": "changed"}, {"id": "shop.notes", "key": ["id"]}],
}


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    (tmp_path / "tidemark.yaml").write_text(
        yaml.safe_dump({"store": "state", "connectors": ["*.connector.yaml"], "tenants": ["t1", "t2"]})
    )
    (tmp_path / "shop.connector.yaml").write_text(yaml.safe_dump(MANIFEST))
    return tmp_path


@pytest.fixture
def definitions(manifests: Path) -> Definitions:
    resource = Definitions(resources={"connectors": ConnectorsResource(platform=PlatformResource())})
    return Definitions.merge(resource, ingest_definitions(load_config(manifests / "tidemark.yaml")))


def test_a_stream_is_two_assets_with_blocking_checks_between_them(definitions: Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    names = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert names == {f"shop_eu/shop_{stream}/{asset}" for stream in ("orders", "notes") for asset in ("landed", "bronze")}
    for node in graph.asset_nodes:
        assert node.description
        assert node.partitions_def is not None
        assert node.partitions_def.get_partition_keys() == ["t1", "t2"]
    for key in graph.get_all_asset_keys():
        parents = [parent.path[-1] for parent in graph.get(key).parent_keys]
        assert parents == (["landed"] if key.path[-1] == "bronze" else [])
    checked = {(check.key.asset_key.path[1], check.key.name) for check in graph.asset_check_nodes if check.blocking}
    assert checked == {(stream, name) for stream in ("shop_orders", "shop_notes") for name in CHECKS}


def test_a_schedule_asks_for_a_run_and_another_for_the_upkeep_of_every_tenant(definitions: Definitions) -> None:
    made = {each.name: each for each in definitions.schedules or []}
    assert {name: each.cron_schedule for name, each in made.items()} == {  # type: ignore[union-attr]
        "ingest_shop_eu": "*/15 * * * *",
        "ingest_shop_eu_upkeep": "0 3 * * 0",
    }
    for each in made.values():
        assert [request.partition_key for request in each()] == ["t1", "t2"]  # type: ignore[operator, misc]


def test_a_stream_is_stale_after_the_time_that_its_manifest_says(manifests: Path) -> None:
    (manifests / "shop.connector.yaml").write_text(yaml.safe_dump(MANIFEST | {"freshness": "PT2H"}))
    resource = Definitions(resources={"connectors": ConnectorsResource(platform=PlatformResource())})
    made = Definitions.merge(resource, ingest_definitions(load_config(manifests / "tidemark.yaml")))
    graph = made.resolve_asset_graph()
    policies = {key.path[-1]: graph.get(key).freshness_policy for key in graph.get_all_asset_keys()}
    assert policies["landed"] is None
    assert isinstance(policies["bronze"], TimeWindowFreshnessPolicy)
    assert policies["bronze"].fail_window.to_timedelta() == timedelta(hours=2)


def test_a_sensor_asks_for_a_run_once_when_files_arrive(manifests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = manifests / "in"
    folder.mkdir()
    files = {
        "connector": "drops",
        "kind": "files",
        "settings": {"path": str(folder)},
        "streams": [{"id": "d", "key": ["id"]}],
    }
    (manifests / "shop.connector.yaml").write_text(yaml.safe_dump(files))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(manifests / "tidemark.yaml"))
    (arrivals,) = ingest_definitions(load_config(manifests / "tidemark.yaml")).sensors or []
    connectors = ConnectorsResource(platform=PlatformResource())

    def asked() -> list[tuple[str | None, str | None]]:
        with (
            DagsterInstance.ephemeral() as instance,
            build_sensor_context(instance, resources={"connectors": connectors}) as context,
        ):
            told = list(arrivals(context))  # type: ignore[call-overload]
            return [(each.partition_key, each.run_key) for each in told if isinstance(each, RunRequest)]

    monkeypatch.setattr(FilesConnector, "pending", lambda *_, **__: pytest.fail("a tick of a sensor read files"))
    assert [tenant for tenant, _ in asked()] == ["t1", "t2"]  # nothing was ever read
    for tenant in ("t1", "t2"):
        subject = connectors.subject(tenant, "drops", "d")
        subject.registry.commit(
            "drops", "d", expected_version=None, cursor_field="_file_checkpoint", last_cursor="[]", run_id="r", actor="a",
            reason="nothing was there",
        )  # fmt: skip
    assert asked() == []
    (folder / "a.csv").write_text("id\n1\n")
    first = asked()
    assert [tenant for tenant, _ in first] == ["t1", "t2"]
    assert asked() == first
    control = connectors.subject("t1", "drops", "d").platform.control
    for tenant in ("t1", "t2"):
        with control.leases.hold(f"connectors/{tenant}/drops/d", "r1"):
            assert tenant not in [asked_for for asked_for, _ in asked()]  # it may be reading them
        control.runs.begin("connectors", f"{tenant}/drops/d", f"{tenant}-r1", {})
        control.runs.finish(f"{tenant}-r1", "failed")
    assert [tenant for tenant, _ in asked()] == ["t1", "t2"]
    assert set(asked()).isdisjoint(first)  # a run that failed is started again
    folder.rename(manifests / "away")
    assert asked() == []


def test_two_manifests_of_one_connector_and_a_pattern_without_a_file_are_told(manifests: Path) -> None:
    (manifests / "copy.connector.yaml").write_text(yaml.safe_dump(MANIFEST))
    with pytest.raises(ConfigError, match="there is a connector 'shop-eu' already"):
        ingest_definitions(load_config(manifests / "tidemark.yaml"))
    (manifests / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "connectors": ["none/*.yaml"]}))
    with pytest.raises(ConfigError, match=r"there is no file none/\*\.yaml"):
        ingest_definitions(load_config(manifests / "tidemark.yaml"))


def test_tenants_whose_tables_would_be_the_same_are_refused(manifests: Path) -> None:
    (manifests / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "tenants": ["a-b", "a_b"]}))
    with pytest.raises(ConfigError, match="two are the same, case and punctuation aside"):
        ingest_definitions(load_config(manifests / "tidemark.yaml"))


def test_a_tenant_must_fit_into_a_path(manifests: Path) -> None:
    (manifests / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "tenants": ["../t1"]}))
    with pytest.raises(UsageError, match="tenants: must be ids"):
        load_config(manifests / "tidemark.yaml")
