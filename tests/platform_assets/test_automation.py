"""What happens by itself: partitions, runs that changes and clocks start, mails about failures."""

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from dagster import (
    AddDynamicPartitionsRequest,
    AssetCheckResult,
    AssetKey,
    DagsterInstance,
    RunRequest,
    SensorResult,
    SkipReason,
    asset,
    asset_check,
    build_run_status_sensor_context,
    build_sensor_context,
    job,
    materialize,
    op,
)

from partitions.catalog import connections
from platform_assets.catalog.automation import (
    connections_in_step,
    decode,
    failure_message,
    failure_told,
    schedules,
    send,
    sources_changed,
)
from resources.catalog import CatalogResource
from resources.platform import PlatformResource
from tests.catalog.harness import Catalog, SparkForTests, SqliteSource
from tests.services.needs import need
from tests.services.ports import free_port
from tests.services.smtp import MailServer, smtp
from tidemark.config import EmailSettings, load_config
from tidemark.errors import StoreError

CANARY = "canary-3f9a1c"
PARTITION = "dagster/partition"

pytestmark = pytest.mark.fast


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def resource(configured: Path) -> CatalogResource:
    return CatalogResource(platform=PlatformResource())


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with smtp() as server:
        yield server


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes, sort_keys=False))


def email(server: MailServer) -> dict[str, object]:
    return {
        "host": "127.0.0.1",
        "port": server.port,
        "from": "tidemark@example.com",
        "to": ["one@example.com", "two@example.com"],
    }


# --- partitions ------------------------------------------------------------------------------------------------------


def in_step(instance: DagsterInstance, catalog: CatalogResource) -> SensorResult:
    """One look of the sensor, with what the daemon does about it."""
    with build_sensor_context(instance=instance, resources={"catalog": catalog}) as context:
        result = connections_in_step(context)
    assert isinstance(result, SensorResult)
    for request in result.dynamic_partitions_requests or ():
        if isinstance(request, AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        else:
            for key in request.partition_keys:
                instance.delete_dynamic_partition(request.partitions_def_name, key)
    return result


def test_partitions_follow_the_configuration(instance: DagsterInstance, configured: Path, resource: CatalogResource) -> None:
    in_step(instance, resource)
    assert instance.get_dynamic_partitions(connections.name) == ["shop"]
    shop = yaml.safe_load(configured.read_text())["connections"]["shop"]
    rewrite(configured, connections={"store": shop, "office": shop | {"id": "2"}})
    in_step(instance, resource)
    assert set(instance.get_dynamic_partitions(connections.name)) == {"store", "office"}
    settled = in_step(instance, resource)
    assert not settled.dynamic_partitions_requests
    assert settled.skip_reason == SkipReason("in step")


# --- runs that a change starts ---------------------------------------------------------------------------------------


class Watch:
    """The sensor with its cursor, as the daemon keeps it."""

    def __init__(self, instance: DagsterInstance, catalog: CatalogResource) -> None:
        self.instance, self.catalog = instance, catalog
        self.cursor: str | None = None

    def look(self) -> list[str | None]:
        """Connections that the sensor wants runs of."""
        with build_sensor_context(self.instance, self.cursor, resources={"catalog": self.catalog}) as context:
            found = list(sources_changed(context))
        self.cursor = context.cursor
        requests = [each for each in found if isinstance(each, RunRequest)]
        assert all(each.tags["tidemark/started-by"] == "sensor" for each in requests)
        return [each.partition_key for each in requests]


@pytest.fixture
def watch(instance: DagsterInstance, resource: CatalogResource) -> Watch:
    instance.add_dynamic_partitions(connections.name, ["shop"])
    return Watch(instance, resource)


def test_a_source_that_changed_is_run_once(watch: Watch, source: SqliteSource) -> None:
    assert watch.look() == ["shop"], "a source never seen before"
    assert watch.look() == []
    source.execute("INSERT INTO customer (name) VALUES ('somebody')")
    assert watch.look() == [], "data is not metadata"
    source.execute("ALTER TABLE customer ADD COLUMN email TEXT")
    assert watch.look() == ["shop"]
    assert watch.look() == []


def test_a_source_that_is_away_hides_no_other_and_is_remembered(
    watch: Watch, configured: Path, source: SqliteSource, tmp_path: Path
) -> None:
    shop = yaml.safe_load(configured.read_text())["connections"]["shop"]
    other = SqliteSource(tmp_path / "office.db")
    rewrite(configured, connections={"shop": shop, "office": shop | {"id": "2", "url": other.url}})
    watch.instance.add_dynamic_partitions(connections.name, ["office", "in no configuration"])
    assert watch.look() == ["shop", "office"]
    source.path.rename(tmp_path / "away.db")
    other.execute("CREATE TABLE desk (id INTEGER)")
    assert watch.look() == ["office"]
    (tmp_path / "away.db").rename(source.path)
    assert watch.look() == [], "it came back as it was"
    assert set(decode(watch.cursor)) == {"shop", "office"}


# --- runs that a clock starts ----------------------------------------------------------------------------------------


def test_every_connection_has_the_schedule_of_its_configuration(configured: Path) -> None:
    shop = yaml.safe_load(configured.read_text())["connections"]["shop"]
    names = ("shop-eu", "shop.eu", "shop_eu", "shop_dash_eu")
    several = {name: shop | {"id": str(minute), "schedule": f"{minute} * * * *"} for minute, name in enumerate(names)}
    rewrite(configured, connections=several | {"by-hand": {key: shop[key] for key in ("app", "id", "url")}})
    made = [each for each in schedules(load_config(configured)) if each.job_name == "catalog"]
    assert [each.cron_schedule for each in made] == [f"{minute} * * * *" for minute in range(len(names))]
    assert len({each.name for each in made}) == len(names)
    asked = [each() for each in made]
    assert [request.partition_key for request in asked] == list(names)
    assert {request.tags["tidemark/started-by"] for request in asked} == {"schedule"}
    assert {request.tags["dagster/max_retries"] for request in asked} == {"2"}


def test_every_connection_has_an_upkeep_once_a_week_unless_it_says_otherwise(configured: Path) -> None:
    shop = yaml.safe_load(configured.read_text())["connections"]["shop"]
    rewrite(configured, connections={"one": shop | {"id": "1"}, "two": shop | {"id": "2", "upkeep": "@daily"}})
    made = [each for each in schedules(load_config(configured)) if each.job_name == "catalog_upkeep"]
    assert [(each.name, each.cron_schedule) for each in made] == [("upkeep_one", "0 3 * * 0"), ("upkeep_two", "@daily")]
    assert [each().partition_key for each in made] == ["one", "two"]


# --- mails -----------------------------------------------------------------------------------------------------------


def test_a_mail_reaches_everybody_it_is_for(mail: MailServer) -> None:
    settings = EmailSettings.model_validate(email(mail))
    send(settings, failure_message(settings, "catalog", "shop", "run-1", "SourceUnreachable: nothing answers at café:5432"))
    (received,) = mail.mails
    assert received["From"] == "tidemark@example.com"
    assert received["To"] == "one@example.com, two@example.com"
    assert received["Subject"] == "Tidemark: catalog of shop failed"
    assert "run-1" in received.get_content()
    assert "nothing answers at café:5432" in received.get_content()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    openssl = need("openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([openssl, *made.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return certificate, context


def test_a_login_is_sent_encrypted_and_only_to_a_server_that_is_known(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, context = certificate
    with smtp(context) as server:
        settings = EmailSettings.model_validate(
            email(server) | {"starttls": True, "username": "tidemark", "password": CANARY}
        )
        message = failure_message(settings, "catalog", "shop", "run-1", "why")
        with pytest.raises(ssl.SSLCertVerificationError):
            send(settings, message)
        assert (server.logins, server.mails) == ([], [])
        monkeypatch.setenv("SSL_CERT_FILE", str(known))
        send(settings, message)
    assert [(each.login, each.password) for each in server.logins] == [(b"tidemark", CANARY.encode())]
    assert len(server.mails) == 1


class Daemon:
    """Looks for failed runs as the daemon does: from a repository, which runs of the command line do not belong to."""

    def __init__(self, instance: DagsterInstance, catalog: CatalogResource) -> None:
        self.instance, self.catalog = instance, catalog
        self.cursor: str | None = None
        self.look()  # the first look only notes where the log ends

    def look(self) -> None:
        resources = {"catalog": self.catalog}
        with build_sensor_context(self.instance, self.cursor, "__repository__", resources=resources) as context:
            tick = failure_told.evaluate_tick(context)
        self.cursor = tick.cursor
        assert [reaction.error for reaction in tick.dagster_run_reactions] in ([], [None])


def test_a_failed_run_is_told_by_its_named_error_without_a_secret(
    tmp_path: Path, spark: SparkForTests, instance: DagsterInstance, mail: MailServer
) -> None:
    address = f"127.0.0.1:{free_port()}"
    url = f"postgresql://shop:{CANARY}@{address}/shop"
    catalog = Catalog.make(tmp_path, spark, None, {"app": "postgresql", "url": url}, email=email(mail))
    catalog.instance = instance
    daemon = Daemon(instance, CatalogResource(platform=PlatformResource(config_path=str(catalog.platform.config.path))))
    result = catalog.attempt()
    assert not result.success
    daemon.look()
    (received,) = mail.mails
    assert received["Subject"] == "Tidemark: catalog of shop failed"
    assert result.run_id in received.get_content()
    assert "SourceUnreachable: " in received.get_content()
    assert address in received.get_content()
    assert CANARY.encode() not in mail.raw[0]
    daemon.look()
    assert len(mail.mails) == 1, "one run, one mail"


@pytest.fixture
def daemon(instance: DagsterInstance, configured: Path, resource: CatalogResource, mail: MailServer) -> Daemon:
    rewrite(configured, email=email(mail))
    return Daemon(instance, resource)


@op
def strange() -> None:
    raise ValueError(f"could not parse {CANARY}")


@op
def caused() -> None:
    try:
        raise ValueError(f"could not parse {CANARY}")
    except ValueError as error:
        raise StoreError("the store is full. Make room.") from error


@job
def strange_job() -> None:
    strange()


@job
def caused_job() -> None:
    caused()


def test_an_error_of_others_is_told_by_name_only(daemon: Daemon, mail: MailServer) -> None:
    strange_job.execute_in_process(instance=daemon.instance, tags={PARTITION: "shop"}, raise_on_error=False)
    daemon.look()
    assert "ValueError: see the run's log" in mail.mails[0].get_content()
    assert CANARY.encode() not in mail.raw[0]


def test_our_own_error_is_told_whatever_it_came_from(daemon: Daemon, mail: MailServer) -> None:
    caused_job.execute_in_process(instance=daemon.instance, tags={PARTITION: "shop"}, raise_on_error=False)
    daemon.look()
    assert "    StoreError: the store is full. Make room." in mail.mails[0].get_content()
    assert CANARY.encode() not in mail.raw[0]


def test_a_check_that_failed_is_told_by_its_name(daemon: Daemon, mail: MailServer) -> None:
    @asset
    def state() -> None: ...

    @asset_check(asset=AssetKey("state"), blocking=True)
    def no_orphans() -> AssetCheckResult:
        return AssetCheckResult(passed=False)

    materialize([state, no_orphans], instance=daemon.instance, tags={PARTITION: "shop"}, raise_on_error=False)
    daemon.look()
    assert "state: no_orphans" in mail.mails[0].get_content()


def test_runs_of_nobody_s_connection_are_not_told(daemon: Daemon, mail: MailServer) -> None:
    strange_job.execute_in_process(instance=daemon.instance, raise_on_error=False)
    strange_job.execute_in_process(instance=daemon.instance, tags={PARTITION: "another's"}, raise_on_error=False)
    daemon.look()
    daemon.look()
    assert mail.mails == []


def test_without_a_mail_server_nothing_is_sent(instance: DagsterInstance, resource: CatalogResource) -> None:
    failed = strange_job.execute_in_process(instance=instance, tags={PARTITION: "shop"}, raise_on_error=False)
    (event,) = [each for each in failed.all_events if each.is_job_failure]
    about = build_run_status_sensor_context(
        "failure_told", event, instance, failed.dagster_run, resources={"catalog": resource}
    )
    with about.for_run_failure() as context:
        assert failure_told(context) == SkipReason("no `email:` in the configuration")
