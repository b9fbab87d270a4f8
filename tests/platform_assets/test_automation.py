"""What happens by itself: partitions, and runs that changes and clocks start."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from dagster import (
    AddDynamicPartitionsRequest,
    DagsterInstance,
    DagsterRunStatus,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    Definitions,
    RunRequest,
    SensorDefinition,
    SensorResult,
    SkipReason,
    build_schedule_context,
    build_sensor_context,
)
from dagster._core.storage.tags import SCHEDULE_NAME_TAG

from partitions.catalog import connections
from partitions.subjects import subjects
from platform_assets.automation import in_the_way, resting, unattended, within_deadline
from platform_assets.catalog.automation import schedules, watches
from platform_assets.catalog.definitions import catalog_definitions
from platform_assets.housekeeping import shared_definitions, sync_partitions
from platform_assets.upkeep import upkeep_schedules
from resources.catalog import CatalogResource
from resources.platform import PlatformResource
from resources.tags import subject_tags, subjects_of
from tests.catalog.harness import SqliteSource
from tests.platform_assets.dagster_runs import a_run, requests
from tidemark.catalog.packs.sqlite import SqlitePack
from tidemark.config import load_config
from tidemark.control import ControlDatabase
from tidemark.errors import SourceUnreachable
from tidemark.runs.system import configured_subjects

SHOP = "catalog/shop"

pytestmark = pytest.mark.fast


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[DagsterInstance]:
    """Schedules open their instance again, which one in memory cannot be."""
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


@pytest.fixture
def resource(configured: Path) -> CatalogResource:
    return CatalogResource(platform=PlatformResource())


@pytest.fixture
def control(resource: CatalogResource) -> ControlDatabase:
    return resource.platform.platform.control


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes, sort_keys=False))


def connection(path: Path, **changes: object) -> None:
    """Changes what the file says of the connection `shop`."""
    rewrite(path, connections={"shop": yaml.safe_load(path.read_text())["connections"]["shop"] | changes})


# --- tags ------------------------------------------------------------------------------------------------------------


def test_a_run_names_its_subjects_in_tags_of_their_own() -> None:
    addresses = [f"model/gold.m{number}" for number in range(12)]
    tags = subject_tags(addresses)
    assert tags["tidemark/subject"] == "model/gold.m0"
    assert tags["tidemark/subject-12"] == "model/gold.m11"
    assert subjects_of(tags | {"dagster/partition": "x"}) == addresses


def test_a_run_that_nobody_watches_is_tried_again_from_its_beginning() -> None:
    tags = unattended("schedule", SHOP)
    assert tags["dagster/max_retries"] == "2"
    assert tags["dagster/retry_strategy"] == "ALL_STEPS"
    assert tags["tidemark/started-by"] == "schedule"


# --- partitions ------------------------------------------------------------------------------------------------------


def synced(instance: DagsterInstance) -> SensorResult:
    """One look of the sensor, with what the daemon does about it."""
    with build_sensor_context(instance=instance, resources={"platform": PlatformResource()}) as context:
        result = sync_partitions(context)
    assert isinstance(result, SensorResult)
    for request in result.dynamic_partitions_requests or ():
        if isinstance(request, AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        else:
            for key in request.partition_keys:
                instance.delete_dynamic_partition(request.partitions_def_name, key)
    return result


def test_partitions_follow_the_configuration(instance: DagsterInstance, configured: Path) -> None:
    synced(instance)
    assert instance.get_dynamic_partitions(connections.name) == ["shop"]
    assert instance.get_dynamic_partitions(subjects.name) == [SHOP]
    shop = yaml.safe_load(configured.read_text())["connections"]["shop"]
    rewrite(configured, connections={"store": shop, "office": shop | {"id": "2"}})
    synced(instance)
    assert set(instance.get_dynamic_partitions(connections.name)) == {"store", "office"}
    assert set(instance.get_dynamic_partitions(subjects.name)) == {"catalog/store", "catalog/office"}
    settled = synced(instance)
    assert not settled.dynamic_partitions_requests
    assert settled.skip_reason == SkipReason("in sync")


def test_in_an_instance_of_several_hosts_no_partition_of_another_host_is_deleted(
    instance: DagsterInstance, configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_PASSWORD", "secret")
    rewrite(configured, **{"dagster-storage": "postgresql://dagster:${DAGSTER_PASSWORD}@db.example.com/dagster"})
    instance.add_dynamic_partitions(str(connections.name), ["office"])
    instance.add_dynamic_partitions(str(subjects.name), ["catalog/office"])
    synced(instance)
    assert set(instance.get_dynamic_partitions(connections.name)) == {"office", "shop"}
    assert set(instance.get_dynamic_partitions(subjects.name)) == {"catalog/office", SHOP}
    assert synced(instance).skip_reason == SkipReason("in sync")


# --- one run of a subject at a time ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [DagsterRunStatus.QUEUED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED])
def test_no_run_is_added_while_one_of_the_subject_waits_or_works(
    instance: DagsterInstance, control: ControlDatabase, status: DagsterRunStatus
) -> None:
    assert in_the_way(instance, control, [SHOP]) is None
    run = a_run(instance, status, "catalog/office", SHOP)
    instance.report_engine_event("alive", run)  # without any event it is taken for dead
    assert in_the_way(instance, control, [SHOP]) == f"{SHOP}: run {run.run_id} is {status.value.lower()}"
    assert in_the_way(instance, control, ["catalog/other"]) is None


@pytest.mark.parametrize("status", [DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED])
def test_upkeep_that_waits_for_its_turn_holds_up_no_run(
    instance: DagsterInstance, control: ControlDatabase, status: DagsterRunStatus
) -> None:
    a_run(instance, status, SHOP, job="tidemark_upkeep")
    assert in_the_way(instance, control, [SHOP]) is None


def test_upkeep_that_works_is_in_the_way(instance: DagsterInstance, control: ControlDatabase) -> None:
    run = a_run(instance, DagsterRunStatus.STARTED, SHOP, job="tidemark_upkeep")
    instance.report_engine_event("alive", run)
    assert in_the_way(instance, control, [SHOP]) == f"{SHOP}: run {run.run_id} is started"


def test_no_run_is_added_while_the_subject_is_held_and_one_that_ended_is_in_nobody_s_way(
    instance: DagsterInstance, control: ControlDatabase
) -> None:
    a_run(instance, DagsterRunStatus.FAILURE, SHOP)
    with control.leases.hold(SHOP, "run-1"):
        assert in_the_way(instance, control, [SHOP]) == f"{SHOP}: run run-1 is in progress"
    assert in_the_way(instance, control, [SHOP]) is None


def test_a_sensor_waits_longer_after_each_failure_in_a_row(instance: DagsterInstance) -> None:
    def failed() -> None:
        instance.report_run_failed(a_run(instance, DagsterRunStatus.STARTED, SHOP))

    def pause() -> timedelta:
        """How long it rests from now on."""
        now = datetime.now(UTC)
        minutes = [m for m in range(0, 70) if resting(instance, SHOP, now + timedelta(minutes=m, seconds=-1))]
        return timedelta(minutes=minutes[-1] if minutes else 0)

    assert resting(instance, SHOP) is None
    pauses = []
    for _ in range(8):
        failed()
        pauses.append(pause())
    assert pauses == [timedelta(minutes=m) for m in (1, 2, 4, 8, 16, 32, 60, 60)]
    assert resting(instance, "catalog/other") is None
    a_run(instance, DagsterRunStatus.QUEUED, SHOP, job="tidemark_upkeep")
    assert resting(instance, SHOP) is not None, "upkeep that waits says nothing about the source"
    a_run(instance, DagsterRunStatus.SUCCESS, SHOP)
    assert resting(instance, SHOP) is None


def test_a_source_that_never_answers_is_given_up_and_not_asked_twice_at_once() -> None:
    answered, questions = Event(), []

    def ask() -> str:
        questions.append(1)
        answered.wait()
        return "answer"

    with pytest.raises(SourceUnreachable, match=r"silent: the source has not answered in 0\.01 seconds"):
        within_deadline("silent", ask, 0.01)
    with pytest.raises(SourceUnreachable, match="still not answered"):
        within_deadline("silent", ask, 0.01)
    assert within_deadline("another", lambda: "at once") == "at once"
    answered.set()
    assert len(questions) == 1
    with pytest.raises(SourceUnreachable, match="nobody there"):
        within_deadline("gone", lambda: refuse("nobody there"))


def refuse(words: str) -> None:
    raise SourceUnreachable(words)


# --- runs that a change starts ---------------------------------------------------------------------------------------


class Watch:
    """The sensor of `shop` with its cursor, as the daemon keeps it."""

    def __init__(self, instance: DagsterInstance, catalog: CatalogResource, path: Path) -> None:
        connection(path, watch=30)
        (self.sensor,) = watches(load_config(path))
        self.instance, self.catalog = instance, catalog
        self.cursor: str | None = None
        self.said: str | None = None

    def look(self) -> bool:
        """Whether the sensor wants a run."""
        with build_sensor_context(self.instance, self.cursor, resources={"catalog": self.catalog}) as context:
            result = self.sensor(context)
        if isinstance(result, SkipReason):
            self.said = result.skip_message
            return False
        assert isinstance(result, SensorResult)
        self.cursor = result.cursor or self.cursor
        requests = result.run_requests or []
        assert all(each.run_key is None and subjects_of(each.tags) == [SHOP] for each in requests)
        return bool(requests)

    def counts(self, run_id: str, mode: str = "incremental") -> None:
        """A run that sees the source as it is now, and counts."""
        subject = self.catalog.subject("shop")
        seen = {"fingerprint": subject.fingerprint()} if mode == "incremental" else {}
        subject.control.runs.begin(SHOP, run_id)
        subject.control.runs.finish(run_id, "published", mode=mode, detail=seen)


@pytest.fixture
def watch(instance: DagsterInstance, resource: CatalogResource, configured: Path) -> Watch:
    return Watch(instance, resource, configured)


def test_a_watch_is_on_where_the_configuration_wants_one(configured: Path) -> None:
    assert watches(load_config(configured)) == []
    connection(configured, watch=45)
    (made,) = watches(load_config(configured))
    assert (made.name, made.minimum_interval_seconds) == ("watch_shop", 45)
    assert made.default_status == DefaultSensorStatus.RUNNING


def test_a_change_stays_due_until_a_run_counts_that_has_seen_it(watch: Watch, source: SqliteSource) -> None:
    assert watch.look(), "nothing was ever read"
    watch.counts("r1")
    assert not watch.look()
    source.execute("INSERT INTO customer (name) VALUES ('somebody')")
    assert not watch.look(), "data is not metadata"
    source.execute("ALTER TABLE customer ADD COLUMN email TEXT")
    assert watch.look()
    assert watch.look(), "the run that was asked for may have failed, or never have begun"
    control = watch.catalog.platform.platform.control
    control.runs.begin(SHOP, "r2")
    control.runs.finish("r2", "failed")
    assert watch.look(), "a run that failed has seen nothing"
    watch.counts("r3")
    assert not watch.look()


def test_upkeep_and_a_rollback_say_nothing_of_the_source(watch: Watch) -> None:
    watch.counts("r1")
    watch.counts("r2", mode="upkeep")
    watch.counts("r3", mode="rollback")
    assert not watch.look()


def test_a_source_without_a_change_is_only_asked_for_its_pulse(
    watch: Watch, source: SqliteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.counts("r1")
    assert not watch.look()
    with monkeypatch.context() as patched:
        patched.setattr(SqlitePack, "fingerprint", lambda *_: pytest.fail("a quiet source was listed"))
        assert not watch.look()
    source.execute("CREATE INDEX by_name ON customer (name)")
    assert not watch.look(), "the pulse moved, the listing did not"
    source.execute("CREATE TABLE other (id INTEGER)")
    assert watch.look()


def test_a_source_that_is_away_is_asked_again_and_stays_due(watch: Watch, source: SqliteSource, tmp_path: Path) -> None:
    watch.counts("r1")
    source.execute("CREATE TABLE desk (id INTEGER)")
    source.path.rename(tmp_path / "away.db")
    assert not watch.look()
    assert watch.said is not None
    assert watch.said.startswith("SourceUnreachable: there is no SQLite file")
    (tmp_path / "away.db").rename(source.path)
    assert watch.look()


def test_a_watch_adds_no_second_run_and_rests_after_a_failure(watch: Watch) -> None:
    run = a_run(watch.instance, DagsterRunStatus.QUEUED, SHOP)
    assert not watch.look()
    assert watch.said == f"{SHOP}: run {run.run_id} is queued"
    watch.instance.report_run_failed(run)
    assert not watch.look()
    assert watch.said is not None
    assert "1 runs failed" in watch.said


# --- runs that a clock starts ----------------------------------------------------------------------------------------


def asked(made: Any, instance: DagsterInstance) -> list[RunRequest]:
    """What a schedule asks for."""
    resources = {"catalog": CatalogResource(platform=PlatformResource()), "platform": PlatformResource()}
    wanted = {name: resources[name] for name in made.required_resource_keys}
    with build_schedule_context(instance=instance, resources=wanted) as context:
        return requests(made, context)


def test_every_connection_has_the_schedule_of_its_configuration(configured: Path, stored: DagsterInstance) -> None:
    shop = yaml.safe_load(configured.read_text())["connections"]["shop"]
    names = ("shop-eu", "shop.eu", "shop_eu", "shop_dash_eu")
    several = {name: shop | {"id": str(minute), "schedule": f"{minute} * * * *"} for minute, name in enumerate(names)}
    rewrite(configured, connections=several | {"by-hand": {key: shop[key] for key in ("app", "id", "url")}})
    made = schedules(load_config(configured))
    assert [each.cron_schedule for each in made] == [f"{minute} * * * *" for minute in range(len(names))]
    assert len({each.name for each in made}) == len(names)
    assert {each.default_status for each in made} == {DefaultScheduleStatus.RUNNING}
    requests = [request for each in made for request in asked(each, stored)]
    assert [request.partition_key for request in requests] == list(names)
    assert [subjects_of(request.tags) for request in requests] == [[f"catalog/{name}"] for name in names]
    assert {request.tags["tidemark/started-by"] for request in requests} == {"schedule"}
    a_run(stored, DagsterRunStatus.QUEUED, "catalog/shop-eu")
    assert asked(made[0], stored) == []


def test_a_schedule_asks_again_for_the_run_that_it_made_and_could_not_submit(
    configured: Path, stored: DagsterInstance
) -> None:
    connection(configured, schedule="0 * * * *", upkeep="0 * * * *")
    (hourly,) = schedules(load_config(configured))
    upkeep = next(
        each for each in upkeep_schedules(configured_subjects(load_config(configured))) if each.name.startswith("upkeep")
    )
    for made, job in ((hourly, "catalog"), (upkeep, "tidemark_upkeep")):
        unsubmitted = a_run(stored, DagsterRunStatus.NOT_STARTED, "catalog/shop", job=job, **{SCHEDULE_NAME_TAG: made.name})
        assert len(asked(made, stored)) == 1, "else it waits for ever: Dagster submits it when it is asked for again"
        stored.delete_run(unsubmitted.run_id)
        another = a_run(stored, DagsterRunStatus.NOT_STARTED, "catalog/shop", job=job, **{SCHEDULE_NAME_TAG: "another"})
        assert asked(made, stored) == []
        stored.delete_run(another.run_id)


def test_upkeep_is_on_once_a_week_unless_a_subject_says_otherwise(configured: Path, stored: DagsterInstance) -> None:
    shop = yaml.safe_load(configured.read_text())["connections"]["shop"]
    several = {"one": shop | {"id": "1"}, "two": shop | {"id": "2", "upkeep": "@daily"}, "three": shop | {"id": "3"}}
    rewrite(configured, connections=several)
    made = {each.name: each for each in upkeep_schedules(configured_subjects(load_config(configured)))}
    assert {name: each.cron_schedule for name, each in made.items()} == {
        "upkeep_0_3_x_x_0": "0 3 * * 0",
        "upkeep_adaily": "@daily",
        "dagster_retention": "30 2 * * *",
    }
    assert {each.default_status for each in made.values()} == {DefaultScheduleStatus.RUNNING}
    weekly = made["upkeep_0_3_x_x_0"]
    assert [request.partition_key for request in asked(weekly, stored)] == ["catalog/one", "catalog/three"]
    a_run(stored, DagsterRunStatus.QUEUED, "catalog/one", job="tidemark_upkeep")
    assert [request.partition_key for request in asked(weekly, stored)] == ["catalog/three"]


def test_what_the_configuration_wants_is_on(configured: Path) -> None:
    connection(configured, watch=30)
    config = load_config(configured)
    made = Definitions.merge(catalog_definitions(config), shared_definitions(config))
    sensors = {each.name: each.default_status for each in made.sensors or [] if isinstance(each, SensorDefinition)}
    assert sensors == dict.fromkeys(
        ("watch_shop", "sync_partitions", "close_dead_runs", "notify_on_failure"), DefaultSensorStatus.RUNNING
    )
    statuses = {each.name: each.default_status for each in made.schedules or []}  # type: ignore[union-attr]
    assert set(statuses) == {"catalog_shop", "upkeep_0_3_x_x_0", "dagster_retention"}
    assert set(statuses.values()) == {DefaultScheduleStatus.RUNNING}
