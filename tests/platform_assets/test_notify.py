"""Notices of failures: one for each, after the last retry, by mail and to a webhook, and never with a secret."""

import smtplib
import ssl
import subprocess
import time
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import EmailMessage, Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    JobDefinition,
    SensorEvaluationContext,
    SkipReason,
    build_sensor_context,
    job,
    op,
)

from platform_assets import notify
from platform_assets.automation import UPKEEP
from platform_assets.instance import instance_settings
from platform_assets.notify import Notice, SubjectFailure, channels_of, message, notify_on_failure, send_mail
from platform_assets.upkeep import dagster_retention
from resources.platform import PlatformResource
from resources.tags import subject_tags
from tests.platform_assets.dagster_runs import a_run
from tests.services.needs import need
from tests.services.ports import free_port
from tests.services.smtp import MailServer, smtp
from tests.services.webhook import Webhook, webhook
from tidemark.config import EmailSettings, load_config
from tidemark.control import ControlDatabase
from tidemark.errors import ChecksFailed, RunInProgress, StoreError

CANARY = "canary-3f9a1c"
SHOP, CARTS, MODEL = "catalog/shop", "stream/default/shop/shop.carts", "model/silver.carts"
STARTED_BY = "tidemark/started-by"

pytestmark = pytest.mark.fast


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with smtp() as server:
        yield server


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as server:
        yield server


def email(server: MailServer) -> dict[str, object]:
    return {
        "host": "127.0.0.1",
        "port": server.port,
        "from": "tidemark@example.com",
        "to": ["one@example.com", "two@example.com"],
    }


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes, sort_keys=False))


class Daemon:
    """Looks for failed runs as the daemon does."""

    def __init__(self, instance: DagsterInstance) -> None:
        self.instance = instance
        self.cursor: str | None = None
        self.look()  # the first look only notes that it begins now

    @property
    def control(self) -> ControlDatabase:
        return PlatformResource().platform.control

    def look(self) -> str:
        """What the sensor said."""
        with build_sensor_context(self.instance, self.cursor, resources={"platform": PlatformResource()}) as context:
            said = notify_on_failure(context)
            self.cursor = context.cursor
        assert isinstance(said, SkipReason)
        return said.skip_message or ""

    def execute(self, job: Any, *subjects: str, **tags: str) -> str:
        done = job.execute_in_process(instance=self.instance, tags={**subject_tags(subjects), **tags}, raise_on_error=False)
        return str(done.run_id)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    """With Tidemark's own settings: Dagster says of a failed run at once whether it is tried again."""
    with DagsterInstance.local_temp(str(tmp_path), overrides=instance_settings(None)) as instance:
        yield instance


@pytest.fixture
def daemon(instance: DagsterInstance, configured: Path, mail: MailServer) -> Daemon:
    """With a connection, a stream and three models."""
    rewrite(configured, email=email(mail), connectors=["shop.connector.yaml"], models="models")
    stream = {"id": "shop.carts", "key": ["id"]}
    manifest = {"connector": "shop", "kind": "sql", "settings": {"url": "sqlite:///none.db"}, "streams": [stream]}
    (configured.parent / "shop.connector.yaml").write_text(yaml.safe_dump(manifest))
    for name in ("silver/carts", "gold/totals", "gold/well"):
        file = configured.parent / f"models/{name}.sql"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("SELECT 1 AS one")
    return Daemon(instance)


@op
def strange() -> None:
    raise ValueError(f"could not parse {CANARY}")


@op
def caused() -> None:
    try:
        raise ValueError(f"could not parse {CANARY}")
    except ValueError as error:
        raise StoreError("the store is full. Make room.") from error


@op
def busy() -> None:
    raise RunInProgress("catalog/shop: run r1 is in progress.")


@job
def strange_job() -> None:
    strange()


@job
def caused_job() -> None:
    caused()


@job
def busy_job() -> None:
    busy()


# --- what a notice says ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "command"),
    [
        (SHOP, "tidemark catalog history shop"),
        (CARTS, "tidemark stream history default/shop/shop.carts"),
        (MODEL, "tidemark model history silver.carts"),
    ],
)
def test_a_failure_of_any_system_is_reported_with_the_command_that_shows_it(
    daemon: Daemon, mail: MailServer, subject: str, command: str
) -> None:
    run_id = daemon.execute(caused_job, subject)
    daemon.look()
    (received,) = mail.mails
    assert received["Subject"] == f"Tidemark: {subject} failed"
    assert "    StoreError: the store is full. Make room." in received.get_content()
    assert f"`{command}`" in received.get_content()
    assert run_id in received.get_content()
    assert CANARY.encode() not in mail.raw[0]
    daemon.look()
    assert len(mail.mails) == 1, "one failure, one mail"


def test_an_error_of_others_is_reported_by_name_only(daemon: Daemon, mail: MailServer) -> None:
    daemon.execute(strange_job, SHOP)
    daemon.look()
    assert "ValueError, which Tidemark has no name for" in mail.mails[0].get_content()
    assert CANARY.encode() not in mail.raw[0]


def test_each_subject_that_failed_is_named_in_the_words_of_the_ledger(daemon: Daemon, mail: MailServer) -> None:
    run = a_run(daemon.instance, DagsterRunStatus.STARTED, MODEL, "model/gold.totals", "model/gold.well")
    runs = daemon.control.runs
    for name, status, error in (
        (MODEL, "failed", ChecksFailed("unique__cart_id: 2 rows share a key.")),
        ("model/gold.totals", "failed", StoreError("the store is full.")),
        ("model/gold.well", "published", None),
    ):
        runs.begin(name, f"r-{name}", dagster_run=run.run_id)
        runs.finish(f"r-{name}", status, error=error)
    daemon.instance.report_run_failed(run)
    daemon.look()
    (received,) = mail.mails
    assert received["Subject"] == f"Tidemark: {MODEL} and 1 more failed"
    text = received.get_content()
    assert "ChecksFailed: unique__cart_id: 2 rows share a key." in text
    assert "StoreError: the store is full." in text
    assert "`tidemark model history gold.totals`" in text
    assert "gold.well" not in text


def test_a_run_whose_process_is_gone_is_reported_too(daemon: Daemon, mail: MailServer) -> None:
    run = a_run(daemon.instance, DagsterRunStatus.STARTED, SHOP)
    daemon.control.runs.begin(SHOP, "r1", dagster_run=run.run_id)
    daemon.instance.report_run_failed(run, "Tidemark: the process 17 of this run is gone.")
    daemon.look()
    assert "    the process 17 of this run is gone." in mail.mails[0].get_content()


@pytest.mark.parametrize(
    ("subjects", "step", "blamed"),
    [
        ([MODEL, "model/gold.totals"], "gold__totals", "model/gold.totals"),
        (["stream/default/shop/shop.cart", CARTS], "shop__shop_carts__landed", CARTS),
        (["stream/default/shop/shop.cart", CARTS], "shop__shop_cart__checks", "stream/default/shop/shop.cart"),
        ([MODEL, "model/gold.totals"], "another", "strange"),
    ],
)
def test_a_nameless_error_is_of_the_subject_whose_step_failed(
    daemon: Daemon, mail: MailServer, subjects: list[str], step: str, blamed: str
) -> None:
    daemon.execute(failing_job(step, ValueError(CANARY), name="strange"), *subjects, CARTS)
    daemon.look()
    (received,) = mail.mails
    assert received["Subject"] == f"Tidemark: {blamed} failed"
    assert f"{blamed}: ValueError, which Tidemark has no name for" in received.get_content()


def test_an_error_is_of_the_subject_that_it_names_in_full(daemon: Daemon, mail: MailServer) -> None:
    cart = "stream/default/shop/shop.cart"
    daemon.execute(failing_job("x", StoreError(f"{CARTS}: the store is full.")), cart, CARTS)
    daemon.execute(failing_job("x", StoreError(f"the store is full, says {cart}.")), CARTS, cart)
    daemon.look()
    assert [each["Subject"] for each in mail.mails] == [f"Tidemark: {each} failed" for each in (CARTS, cart)]


def test_two_subjects_that_failed_in_the_same_words_are_both_named(daemon: Daemon, mail: MailServer) -> None:
    @op
    def silver__carts() -> None:
        raise StoreError("the store is full.")

    @op
    def gold__totals() -> None:
        raise StoreError("the store is full.")

    @job
    def both() -> None:
        silver__carts()
        gold__totals()

    daemon.execute(both, MODEL, "model/gold.totals")
    daemon.look()
    assert mail.mails[0]["Subject"].endswith("and 1 more failed")


def failing_job(step: str, error: Exception, name: str = "failing") -> JobDefinition:
    """A job whose only step fails."""

    @op(name=step)
    def fails() -> None:
        raise error

    @job(name=name)
    def failing() -> None:
        fails()

    return failing


# --- what is not reported --------------------------------------------------------------------------------------------


def test_a_failure_is_reported_once_though_the_daemon_forgets_that_it_did(daemon: Daemon, mail: MailServer) -> None:
    before = daemon.cursor
    daemon.execute(caused_job, SHOP)
    daemon.look()
    daemon.cursor = before  # it was killed before it kept its cursor
    daemon.look()
    assert len(mail.mails) == 1


def test_a_run_that_dagster_said_it_would_try_again_and_did_not_is_reported(
    daemon: Daemon, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(daemon.instance, DagsterRunStatus.STARTED, SHOP, **{"dagster/max_retries": "1"})
    daemon.instance.report_run_failed(run)
    daemon.look()
    assert mail.mails == []
    # It could not reach the code server, or was killed, and has gone on to the next event.
    monkeypatch.setattr(notify, "RETRIED_WITHIN", timedelta(0))
    daemon.look()
    daemon.look()
    assert len(mail.mails) == 1


def test_a_failure_of_which_dagster_has_not_said_yet_whether_it_tries_again_waits(
    daemon: Daemon, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster._core.instance.methods.event_methods.EventMethods._should_retry_run", never_said)
    run = a_run(daemon.instance, DagsterRunStatus.STARTED, SHOP, **{"dagster/max_retries": "1"})
    with suppress(RuntimeError):
        daemon.instance.report_run_failed(run)
    daemon.look()
    assert mail.mails == []
    daemon.instance.add_run_tags(run.run_id, {"dagster/will_retry": "false"})
    daemon.look()
    assert len(mail.mails) == 1


def never_said(*_: Any) -> bool:
    raise RuntimeError("killed between the two")


def test_a_webhook_that_is_away_keeps_no_mail_back(
    daemon: Daemon, configured: Path, mail: MailServer, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(configured, webhook={"url": hook.url})
    tried: list[str] = []

    def away(_settings: Any, notice: Notice) -> None:
        tried.append(notice.dagster_run)
        raise TimeoutError

    monkeypatch.setattr(notify, "post", away)
    for _ in range(3):
        daemon.execute(caused_job, SHOP)
    daemon.look()
    assert (len(mail.mails), len(tried)) == (3, 1), "what is away is tried once in an evaluation"
    daemon.look()
    assert (len(mail.mails), len(tried)) == (3, 2)


def test_only_the_last_of_several_attempts_is_reported(daemon: Daemon, mail: MailServer) -> None:
    again = {"dagster/max_retries": "1"}
    first = a_run(daemon.instance, DagsterRunStatus.STARTED, SHOP, **again)
    daemon.instance.report_run_failed(first)
    daemon.look()
    assert mail.mails == []
    second = a_run(daemon.instance, DagsterRunStatus.STARTED, SHOP, parent=first, **again)
    daemon.instance.report_run_failed(second)
    daemon.look()
    assert len(mail.mails) == 1


def test_a_run_that_found_another_at_work_is_reported_to_the_person_who_started_it_only(
    daemon: Daemon, mail: MailServer
) -> None:
    daemon.execute(busy_job, SHOP, **{STARTED_BY: "sensor"})
    daemon.look()
    assert mail.mails == []
    daemon.execute(busy_job, SHOP)
    daemon.look()
    assert len(mail.mails) == 1


def test_runs_of_others_are_not_reported(daemon: Daemon, mail: MailServer) -> None:
    daemon.execute(strange_job)
    daemon.execute(strange_job, "catalog/of-another-host")
    daemon.look()
    assert mail.mails == []


def test_without_a_channel_nothing_is_sent(instance: DagsterInstance, configured: Path) -> None:
    daemon = Daemon(instance)
    daemon.execute(strange_job, SHOP)
    daemon.look()


def test_failures_are_reported_though_the_project_cannot_be_read(
    daemon: Daemon, configured: Path, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (configured.parent / "shop.connector.yaml").write_text("connector: [")
    here = SimpleNamespace(location_name="tidemark")
    monkeypatch.setattr(SensorEvaluationContext, "code_location_origin", here)
    daemon.execute(caused_job, CARTS)  # of the command line: of no location
    failed = a_run(daemon.instance, DagsterRunStatus.STARTED, MODEL)
    daemon.instance.report_run_failed(failed)
    daemon.execute(strange_job, "of-nobody/x")
    daemon.look()
    assert {each["Subject"] for each in mail.mails} == {f"Tidemark: {each} failed" for each in (CARTS, MODEL)}
    here.location_name = "another-host"
    daemon.instance.report_run_failed(a_run(daemon.instance, DagsterRunStatus.STARTED, "stream/default/elsewhere/x"))
    daemon.look()
    assert len(mail.mails) == 2, "its own host reports it"


def test_upkeep_that_gave_up_waiting_is_reported(daemon: Daemon, mail: MailServer) -> None:
    daemon.execute(JobDefinition(name=UPKEEP, graph_def=busy_job.graph), SHOP, **{STARTED_BY: "schedule"})
    daemon.look()
    assert "RunInProgress: catalog/shop: run r1 is in progress." in mail.mails[0].get_content()


def test_a_failure_of_our_own_job_without_a_subject_is_reported_by_its_name(
    daemon: Daemon, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SensorEvaluationContext, "code_location_origin", SimpleNamespace(location_name="tidemark"))
    daemon.execute(JobDefinition(name=dagster_retention.name, graph_def=caused_job.graph), **{STARTED_BY: "schedule"})
    daemon.look()
    (received,) = mail.mails
    assert received["Subject"] == "Tidemark: dagster_retention failed"
    assert "StoreError: the store is full. Make room." in received.get_content()
    monkeypatch.setattr(SensorEvaluationContext, "code_location_origin", SimpleNamespace(location_name="another-host"))
    of_another = a_run(daemon.instance, DagsterRunStatus.STARTED, job=dagster_retention.name)
    daemon.instance.report_run_failed(of_another)
    daemon.look()
    assert len(mail.mails) == 1


# --- channels --------------------------------------------------------------------------------------------------------

NOTICE = Notice("catalog", "d-1", "schedule", (SubjectFailure(SHOP, "r-1", "SourceUnreachable: café:5432", "tidemark …"),))


def test_a_mail_reaches_everybody_it_is_for(mail: MailServer) -> None:
    settings = EmailSettings.model_validate(email(mail))
    send_mail(settings, message(settings, NOTICE))
    (received,) = mail.mails
    assert received["From"] == "tidemark@example.com"
    assert received["To"] == "one@example.com, two@example.com"
    assert "SourceUnreachable: café:5432" in received.get_content()


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
        with pytest.raises(ssl.SSLCertVerificationError):
            send_mail(settings, message(settings, NOTICE))
        assert (server.logins, server.mails) == ([], [])
        monkeypatch.setenv("SSL_CERT_FILE", str(known))
        send_mail(settings, message(settings, NOTICE))
    assert [(each.login, each.password) for each in server.logins] == [(b"tidemark", CANARY.encode())]
    assert len(server.mails) == 1


def test_a_webhook_gets_the_same_as_json(configured: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", CANARY)
    rewrite(configured, webhook={"url": hook.url, "headers": {"Authorization": "Bearer ${TOKEN}"}})
    config = load_config(configured)
    assert CANARY not in repr(config)
    assert "token-7c1e" not in repr(config)
    channels_of(config)["webhook"](NOTICE)
    (body,) = hook.bodies
    assert body["event"] == "run_failed"
    assert body["failures"] == [
        {"subject": SHOP, "run_id": "r-1", "error": "SourceUnreachable: café:5432", "command": "tidemark …"}
    ]
    assert hook.headers[0]["Authorization"] == f"Bearer {CANARY}"
    assert hook.headers[0]["Content-Type"] == "application/json"


def test_a_channel_that_fails_stops_no_other_and_gets_the_notice_later(
    daemon: Daemon, configured: Path, mail: MailServer, hook: Webhook
) -> None:
    rewrite(configured, email=email(mail) | {"port": free_port()}, webhook={"url": hook.url})
    run_id = daemon.execute(caused_job, SHOP)
    said = f"reported {run_id} by webhook; mail did not take the notice of {run_id}: ConnectionRefusedError"
    assert daemon.look() == said
    assert (len(mail.mails), len(hook.bodies)) == (0, 1)
    rewrite(configured, email=email(mail))
    assert daemon.look() == f"reported {run_id} by mail"
    assert daemon.look() == "no run has failed for good"
    assert (len(mail.mails), len(hook.bodies)) == (1, 1)
    hook.refusals = 1
    run_id = daemon.execute(caused_job, SHOP)
    said = f"reported {run_id} by mail; webhook did not take the notice of {run_id}: HTTPError"
    assert daemon.look() == said
    assert daemon.look() == f"reported {run_id} by webhook"
    assert (len(mail.mails), len(hook.bodies)) == (2, 2)


# --- channels that are away or refuse --------------------------------------------------------------------------------


def test_what_one_channel_had_stays_due_for_the_other_that_is_away(
    daemon: Daemon, configured: Path, mail: MailServer, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "RETRIED_WITHIN", timedelta(0))
    rewrite(configured, email=email(mail) | {"port": free_port()}, webhook={"url": hook.url})
    daemon.execute(caused_job, SHOP)
    daemon.look()
    time.sleep(1.1)  # the cursor is a second behind
    daemon.execute(caused_job, MODEL)
    daemon.look()
    time.sleep(1.1)
    daemon.look()
    assert len(hook.bodies) == 2
    rewrite(configured, email=email(mail))
    daemon.look()
    assert {each["Subject"] for each in mail.mails} == {f"Tidemark: {each} failed" for each in (SHOP, MODEL)}


@dataclass
class Filter:
    """A mail server that takes no mail about some subjects."""

    refused: set[str]
    tried: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def send(self, _settings: EmailSettings, mail: EmailMessage) -> None:
        subject = mail["Subject"].split()[1]
        self.tried.append(subject)
        if subject in self.refused:
            raise smtplib.SMTPDataError(550, b"content")
        self.taken.append(subject)


@pytest.fixture
def content_filter(monkeypatch: pytest.MonkeyPatch) -> Filter:
    made = Filter({SHOP})
    monkeypatch.setattr(notify, "send_mail", made.send)
    return made


def test_a_notice_that_is_refused_keeps_no_other_back(daemon: Daemon, content_filter: Filter) -> None:
    for subject in (SHOP, MODEL, CARTS):
        daemon.execute(caused_job, subject)
    assert "mail did not take the notice of" in daemon.look()
    assert content_filter.taken == [MODEL, CARTS]
    daemon.execute(caused_job, "model/gold.totals")
    daemon.look()
    assert content_filter.tried[3:] == ["model/gold.totals", SHOP], "those that were never refused first"
    content_filter.refused = set()
    daemon.look()
    assert content_filter.taken[-1] == SHOP


def test_a_channel_that_refuses_two_notices_is_left_alone_until_the_next_look(
    daemon: Daemon, content_filter: Filter
) -> None:
    content_filter.refused = {SHOP, MODEL, CARTS}
    for subject in (SHOP, MODEL, CARTS):
        daemon.execute(caused_job, subject)
    daemon.look()
    assert content_filter.tried == [SHOP, MODEL]
    daemon.look()
    assert content_filter.tried[2:] == [CARTS, SHOP]


def test_a_notice_that_is_refused_for_a_day_is_given_up(
    daemon: Daemon, content_filter: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = daemon.execute(caused_job, SHOP)
    for _ in range(notify.REFUSALS + 1):
        daemon.look()
    assert len(content_filter.tried) == notify.REFUSALS + 1, "it may be taken within a day"
    monkeypatch.setattr(notify, "GIVEN_UP_AFTER", timedelta(0))
    assert "given up" not in daemon.look(), "nothing else was taken either: the server may be at fault"
    daemon.execute(caused_job, MODEL)
    assert f"mail is given up for {run_id}" in daemon.look()
    tried = len(content_filter.tried)
    assert daemon.look() == "no run has failed for good"
    assert len(content_filter.tried) == tried


def test_a_server_that_is_away_makes_no_notice_given_up(
    daemon: Daemon, configured: Path, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "GIVEN_UP_AFTER", timedelta(0))
    rewrite(configured, email=email(mail) | {"port": free_port()})
    daemon.execute(caused_job, SHOP)
    for _ in range(notify.REFUSALS + 2):
        daemon.look()
    rewrite(configured, email=email(mail))
    daemon.look()
    assert len(mail.mails) == 1


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (smtplib.SMTPDataError(550, b"content"), False),
        (smtplib.SMTPRecipientsRefused({}), True),
        (smtplib.SMTPAuthenticationError(535, b"who?"), True),
        (smtplib.SMTPServerDisconnected(), True),
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (urllib.error.URLError("no route"), True),
        (urllib.error.HTTPError("", 413, "too long", Message(), None), False),
        (urllib.error.HTTPError("", 400, "what?", Message(), None), False),
        (urllib.error.HTTPError("", 503, "later", Message(), None), True),
        (urllib.error.HTTPError("", 401, "who?", Message(), None), True),
        (UnicodeEncodeError("ascii", "é", 0, 1, "no"), False),
    ],
)
def test_a_refusal_of_one_notice_is_told_from_a_channel_that_takes_none(error: Exception, away: bool) -> None:
    assert notify.takes_nothing(error) is away


def test_a_run_that_cannot_be_described_is_reported_without_words_and_stops_no_other(
    daemon: Daemon, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = notify.notice_of

    def broken(instance: DagsterInstance, control: ControlDatabase, run: DagsterRun) -> Notice:
        if run.run_id == bad:
            raise ValueError(CANARY)
        return described(instance, control, run)

    bad = daemon.execute(caused_job, SHOP)
    daemon.execute(caused_job, MODEL)
    monkeypatch.setattr(notify, "notice_of", broken)
    daemon.look()
    assert [each["Subject"] for each in mail.mails] == [f"Tidemark: {each} failed" for each in (SHOP, MODEL)]
    assert "could not be read (ValueError)" in mail.mails[0].get_content()
    assert CANARY.encode() not in mail.raw[0]
