"""Streams in Dagster: two assets each, five blocking checks between them, a partition per tenant."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    DagsterRunStatus,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    Definitions,
    RunRequest,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    build_schedule_context,
    build_sensor_context,
)

from platform_assets.connectors.definitions import ingest_definitions
from resources.connectors import ConnectorsResource
from resources.platform import PlatformResource, share_platform
from resources.tags import subjects_of
from spark_code.platform import Platform
from tests.platform_assets.dagster_runs import a_run, requests
from tidemark.config import load_config
from tidemark.connectors.kinds.files import FilesConnector
from tidemark.connectors.manifests import find_manifest, load_manifests
from tidemark.connectors.verification import CHECKS
from tidemark.errors import ConfigError, UsageError

pytestmark = pytest.mark.fast

RESOURCES = {"connectors": ConnectorsResource(platform=PlatformResource())}
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


def test_a_schedule_asks_for_a_run_of_every_tenant_without_the_streams_that_are_busy(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_CONFIG", str(manifests / "tidemark.yaml"))
    (made,) = ingest_definitions(load_config(manifests / "tidemark.yaml")).schedules or []
    assert (made.name, made.cron_schedule) == ("ingest_shop_eu", "*/15 * * * *")  # type: ignore[union-attr]
    assert made.default_status == DefaultScheduleStatus.RUNNING  # type: ignore[union-attr]
    connectors = ConnectorsResource(platform=PlatformResource())

    def asked(instance: DagsterInstance) -> dict[str | None, list[str]]:
        with build_schedule_context(instance, resources={"connectors": connectors}) as context:
            return {each.partition_key: subjects_of(each.tags) for each in requests(made, context)}

    with DagsterInstance.local_temp(str(manifests)) as instance:
        every = {tenant: [f"stream/{tenant}/shop-eu/shop.{name}" for name in ("orders", "notes")] for tenant in ("t1", "t2")}
        assert asked(instance) == every
        a_run(instance, DagsterRunStatus.QUEUED, "stream/t1/shop-eu/shop.orders")
        assert asked(instance) == every | {"t1": ["stream/t1/shop-eu/shop.notes"]}
        a_run(instance, DagsterRunStatus.QUEUED, *every["t1"], *every["t2"])
        assert asked(instance) == {}


def test_a_pool_is_of_one_stream_where_a_stream_is_one_subject(manifests: Path) -> None:
    def pools() -> set[str | None]:
        made = ingest_definitions(load_config(manifests / "tidemark.yaml"))
        graph = Definitions.merge(Definitions(resources=RESOURCES), made).resolve_asset_graph()
        return {pool for node in graph.asset_nodes for pool in node.pools or [None]}

    assert pools() == {None}, "with several tenants one would wait for the other"
    (manifests / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "connectors": ["*.connector.yaml"]}))
    assert pools() == {f"stream/default/shop-eu/shop.{name}" for name in ("orders", "notes")}


def evaluated(
    manifests: Path, instance: DagsterInstance, cursor: str | None, *, store: bool = False
) -> tuple[dict[str, bool], str | None]:
    """One look of the sensor: the verdict for every tenant that it gives one for. The daemon stores them."""
    (sensor,) = ingest_definitions(load_config(manifests / "tidemark.yaml")).sensors or []
    connectors = ConnectorsResource(platform=PlatformResource())
    with build_sensor_context(instance, cursor, resources={"connectors": connectors}) as context:
        result = sensor(context)  # type: ignore[call-overload]
    assert isinstance(result, SensorResult)
    found = [each for each in result.asset_events if isinstance(each, AssetCheckEvaluation)]
    for each in found if store else ():
        instance.report_runless_asset_event(each)
    assert {each.asset_key.path[-1] for each in found} <= {"bronze"}
    return {f"{each.partition} {each.asset_key.path[1]}": each.passed for each in found}, result.cursor


def test_one_fresh_tenant_hides_no_stale_one(manifests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = [MANIFEST["streams"][0]]  # type: ignore[index]
    (manifests / "shop.connector.yaml").write_text(yaml.safe_dump(MANIFEST | {"freshness": "PT2H", "streams": stream}))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(manifests / "tidemark.yaml"))
    moment = datetime(2026, 3, 3, 12, tzinfo=UTC)
    clock = SimpleNamespace(now=lambda: moment)
    platform = share_platform(Platform(load_config(manifests / "tidemark.yaml"), clock=clock))
    made = Definitions.merge(Definitions(resources=RESOURCES), ingest_definitions(platform.config))
    (check,) = [each for each in made.resolve_asset_graph().asset_check_nodes if each.key.name == "is_fresh"]
    assert check.partitions_def is not None
    assert list(check.partitions_def.get_partition_keys()) == ["t1", "t2"]
    runs = platform.control.runs
    for tenant in ("t1", "t2"):
        runs.begin(f"stream/{tenant}/shop-eu/shop.orders", tenant)
        runs.finish(tenant, "published", mode="incremental")
    with DagsterInstance.ephemeral() as instance:
        found, cursor = evaluated(manifests, instance, None)
        assert found == {"t1 shop_orders": True, "t2 shop_orders": True}
        moment += timedelta(minutes=50)
        assert evaluated(manifests, instance, cursor) == ({}, cursor), "said a moment ago"
        runs.begin("stream/t1/shop-eu/shop.orders", "again")
        runs.finish("again", "unchanged", mode="incremental")
        runs.begin("stream/t2/shop-eu/shop.orders", "failed")
        runs.finish("failed", "failed", mode="incremental")
        runs.begin("stream/t2/shop-eu/shop.orders", "upkeep")
        runs.finish("upkeep", "published", mode="upkeep")
        moment += timedelta(minutes=80)
        found, _ = evaluated(manifests, instance, cursor)
        assert found == {"t1 shop_orders": True, "t2 shop_orders": False}


def test_dagster_keeps_the_last_verdict_of_every_tenant_however_often_it_is_given(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the daemon stores them: it knows no run that gave them, and takes one verdict only."""
    stream = [MANIFEST["streams"][0]]  # type: ignore[index]
    (manifests / "shop.connector.yaml").write_text(yaml.safe_dump(MANIFEST | {"freshness": "PT2H", "streams": stream}))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(manifests / "tidemark.yaml"))
    moment = datetime(2026, 3, 3, 12, tzinfo=UTC)
    clock = SimpleNamespace(now=lambda: moment)
    platform = share_platform(Platform(load_config(manifests / "tidemark.yaml"), clock=clock))
    key = AssetCheckKey(AssetKey(["shop_eu", "shop_orders", "bronze"]), "is_fresh")
    with DagsterInstance.local_temp(str(manifests)) as instance:
        cursor = None
        for is_fresh in (False, True, True):
            if is_fresh:
                platform.control.runs.begin("stream/t1/shop-eu/shop.orders", str(moment))
                platform.control.runs.finish(str(moment), "published", mode="incremental")
            found, cursor = evaluated(manifests, instance, cursor, store=True)
            assert found == {"t1 shop_orders": is_fresh, "t2 shop_orders": False}
            kept = instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
            assert {each.partition: each.status.value == "SUCCEEDED" for each in kept} == {"t1": is_fresh, "t2": False}
            assert len(kept) == 2
            moment += timedelta(minutes=61)


FILES = {"connector": "drops", "kind": "files", "watch": 20, "streams": [{"id": "d", "key": ["id"]}]}


@pytest.fixture
def folder(manifests: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that a sensor watches."""
    folder = manifests / "in"
    folder.mkdir()
    (manifests / "shop.connector.yaml").write_text(yaml.safe_dump(FILES | {"settings": {"path": str(folder)}}))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(manifests / "tidemark.yaml"))
    monkeypatch.setattr(FilesConnector, "pending", lambda *_, **__: pytest.fail("a tick of a sensor read files"))
    return folder


class Arrivals:
    """The sensor of the folder, with its instance."""

    def __init__(self, manifests: Path, instance: DagsterInstance) -> None:
        (self.sensor,) = ingest_definitions(load_config(manifests / "tidemark.yaml")).sensors or []
        self.connectors, self.instance = ConnectorsResource(platform=PlatformResource()), instance
        self.control = self.connectors.platform.platform.control

    def look(self) -> list[str | None]:
        """The tenants that it wants runs of."""
        with build_sensor_context(self.instance, resources={"connectors": self.connectors}) as context:
            answers = list(self.sensor(context))  # type: ignore[call-overload]
        self.said = "; ".join(each.skip_message or "" for each in answers if isinstance(each, SkipReason))
        found = [each for each in answers if isinstance(each, RunRequest)]
        assert all(each.run_key is None for each in found)
        return [each.partition_key for each in found]

    def read_all(self, tenant: str) -> None:
        """A run that has read the empty folder, and counts."""
        subject = self.connectors.subject(tenant, "drops", "d")
        subject.marks.move(
            subject.address, None, "[]", field="_file_checkpoint", run_id="r", actor="a", reason="nothing was there"
        )


@pytest.fixture
def arrivals(manifests: Path, folder: Path) -> Iterator[Arrivals]:
    with DagsterInstance.ephemeral() as instance:
        yield Arrivals(manifests, instance)


def test_what_waits_stays_due_until_a_run_counts(arrivals: Arrivals, folder: Path, manifests: Path) -> None:
    assert (arrivals.sensor.name, arrivals.sensor.minimum_interval_seconds) == ("watch_ingest_drops", 20)
    assert arrivals.sensor.default_status == DefaultSensorStatus.RUNNING
    assert arrivals.look() == ["t1", "t2"], "nothing was ever read"
    for tenant in ("t1", "t2"):
        arrivals.read_all(tenant)
    assert arrivals.look() == []
    (folder / "a.csv").write_text("id\n1\n")
    assert arrivals.look() == ["t1", "t2"]
    assert arrivals.look() == ["t1", "t2"], "a run that failed before its first step, or was cancelled, has read nothing"
    for tenant in ("t1", "t2"):
        address = f"stream/{tenant}/drops/d"
        with arrivals.control.leases.hold(address, "r1"):
            assert tenant not in arrivals.look()  # it may be reading them
        arrivals.control.runs.begin(address, f"{tenant}-r1")
        arrivals.control.runs.finish(f"{tenant}-r1", "failed")
    assert arrivals.look() == ["t1", "t2"], "a run that failed has read nothing"
    folder.rename(manifests / "away")
    assert arrivals.look() == []


def test_a_source_that_is_away_is_told_without_a_log(
    arrivals: Arrivals, folder: Path, manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = property(lambda _: pytest.fail("a log is a file for every look, which nobody removes"))
    monkeypatch.setattr(SensorEvaluationContext, "log", logs)
    for tenant in ("t1", "t2"):
        arrivals.read_all(tenant)
    folder.rename(manifests / "away")
    assert arrivals.look() == []
    for tenant in ("t1", "t2"):
        assert f"stream/{tenant}/drops/d: SourceUnreachable: " in arrivals.said


def test_a_stream_has_one_waiting_run_and_rests_after_one_was_cancelled(arrivals: Arrivals) -> None:
    run = a_run(arrivals.instance, DagsterRunStatus.QUEUED, "stream/t1/drops/d")
    assert arrivals.look() == ["t2"]
    arrivals.instance.report_run_canceled(run)
    assert arrivals.look() == ["t2"], "for a minute"


def test_without_a_watch_there_is_no_sensor(manifests: Path, folder: Path) -> None:
    manifest = {key: value for key, value in FILES.items() if key != "watch"}
    (manifests / "shop.connector.yaml").write_text(yaml.safe_dump(manifest | {"settings": {"path": str(folder)}}))
    assert not ingest_definitions(load_config(manifests / "tidemark.yaml")).sensors


def test_two_manifests_of_one_connector_are_both_left_out_and_others_stay(manifests: Path) -> None:
    (manifests / "copy.connector.yaml").write_text(yaml.safe_dump(MANIFEST | {"connector": "shop_EU"}))
    (manifests / "other.connector.yaml").write_text(yaml.safe_dump(MANIFEST | {"connector": "other"}))
    made = ingest_definitions(load_config(manifests / "tidemark.yaml"))
    assert [each.name for each in made.jobs] == ["ingest_other"]
    with pytest.raises(ConfigError, match=r"copy\.connector\.yaml has the name 'shop-eu' too, case and punctuation aside"):
        find_manifest(load_config(manifests / "tidemark.yaml"), "shop-eu")


def test_a_pattern_without_a_file_leaves_out_nothing_else(manifests: Path) -> None:
    patterns = ["none/*.yaml", "*.connector.yaml"]
    (manifests / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "connectors": patterns}))
    found = load_manifests(load_config(manifests / "tidemark.yaml"))
    assert list(found) == ["shop-eu"]
    assert [str(each) for each in found.broken[0].findings] == [
        f"{manifests}/tidemark.yaml:2: connectors[0]: no file matches none/*.yaml."
    ]


def test_tenants_whose_tables_would_be_the_same_are_refused(manifests: Path) -> None:
    (manifests / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "tenants": ["a-b", "a_b"]}))
    with pytest.raises(ConfigError, match="two are the same, case and punctuation aside"):
        ingest_definitions(load_config(manifests / "tidemark.yaml"))


def test_a_tenant_must_fit_into_a_path(manifests: Path) -> None:
    (manifests / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "tenants": ["../t1"]}))
    with pytest.raises(UsageError, match="tenants: must be ids"):
        load_config(manifests / "tidemark.yaml")
