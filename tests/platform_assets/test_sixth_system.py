"""A sixth system (`tests/runs/toy.py`) gets from Dagster and the command line what the others have, by being registered."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    ExecuteInProcessResult,
    RunRequest,
    SkipReason,
    build_schedule_context,
    build_sensor_context,
    in_process_executor,
)
from typer.testing import CliRunner

from partitions.subjects import subjects
from platform_assets.dead_runs import cancel_orphans
from platform_assets.housekeeping import shared_definitions, sync_partitions
from platform_assets.instance import instance_settings
from platform_assets.launch import QUIET
from platform_assets.notify import notify_on_failure
from platform_assets.system_job import system_definitions
from resources.platform import PlatformResource
from tests.platform_assets.dagster_runs import a_run
from tests.runs.toy import TOY
from tests.services.smtp import MailServer, smtp
from tidemark.checks import CheckResult
from tidemark.cli.noun import noun
from tidemark.cli.status import status
from tidemark.config import load_config
from tidemark.control import RunRecord
from tidemark.runs import system as registry
from tidemark.runs.system import known_subjects

ADDRESS = "toy/numbers"

pytestmark = pytest.mark.fast


class Toy:
    """The toy in an instance of Dagster, with nothing written for it there."""

    def __init__(self, folder: Path, instance: DagsterInstance) -> None:
        self.source, self.instance = folder / "source.txt", instance
        self.source.write_text("1 2 3\n")
        self.config = load_config(folder / "tidemark.yaml")
        own = Definitions(executor=in_process_executor, resources={"platform": PlatformResource()})
        self.defs = Definitions.merge(own, shared_definitions(self.config), system_definitions(TOY, self.config))
        instance.add_dynamic_partitions(str(subjects.name), [ADDRESS, "catalog/shop"])

    def execute(self, job: str = "toy", partition: str = ADDRESS, **tags: str) -> ExecuteInProcessResult:
        made = self.defs.resolve_job_def(job)
        options: dict[str, Any] = {"run_config": QUIET, "tags": tags, "raise_on_error": False}
        return made.execute_in_process(instance=self.instance, partition_key=partition, **options)

    def tick(self, schedule: str) -> list[Any]:
        resources = {"platform": PlatformResource()}
        found = self.defs.resolve_schedule_def(schedule)
        with build_schedule_context(
            self.instance, resources=resources, repository_def=self.defs.get_repository_def()
        ) as context:
            done = found.evaluate_tick(context)
        return list(done.run_requests or []) or [done.skip_message]

    @property
    def history(self) -> list[RunRecord]:
        return list(PlatformResource().platform.control.runs.history(ADDRESS))


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with smtp() as server:
        yield server


@pytest.fixture
def toy(tmp_path: Path, mail: MailServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    monkeypatch.setattr(registry, "_registered", {"toy": TOY})
    email = {"host": "127.0.0.1", "port": mail.port, "from": "tidemark@example.com", "to": ["team@example.com"]}
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "store", "email": email}))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(tmp_path / "tidemark.yaml"))
    (tmp_path / "dagster").mkdir()
    with DagsterInstance.local_temp(str(tmp_path / "dagster"), overrides=instance_settings(None)) as instance:
        yield Toy(tmp_path, instance)


def test_it_has_a_job_whose_failure_is_tried_again_from_the_beginning_and_can_succeed(toy: Toy) -> None:
    toy.source.write_text("1 two\n")
    failed = toy.execute()
    assert not failed.success
    toy.source.write_text("1 2\n")
    again = toy.execute(**{"dagster/parent_run_id": failed.run_id, "dagster/root_run_id": failed.run_id})
    assert again.success
    assert [(each.run_id, each.status, each.dagster_run) for each in toy.history] == [
        (again.run_id, "published", again.run_id), (failed.run_id, "failed", failed.run_id),
    ]  # fmt: skip


def test_its_job_refuses_a_partition_of_another_system(toy: Toy) -> None:
    done = toy.execute(partition="catalog/shop")
    assert not done.success
    assert toy.history == []


def test_its_schedule_is_on_asks_for_a_run_that_is_retried_and_adds_none_while_one_waits(toy: Toy) -> None:
    (made,) = [each.name for each in toy.defs.schedules or [] if each.name.startswith("toy_")]
    (request,) = toy.tick(made)
    assert isinstance(request, RunRequest)
    assert request.partition_key == ADDRESS
    assert (request.tags["dagster/max_retries"], request.tags["dagster/retry_strategy"]) == ("2", "ALL_STEPS")
    a_run(toy.instance, DagsterRunStatus.QUEUED, ADDRESS, job="toy")
    (why,) = toy.tick(made)
    assert "queued or under way" in why
    assert cancel_orphans(toy.instance, lambda: known_subjects(toy.config)) == []


def test_its_failure_is_reported_once_with_the_command_that_shows_it(toy: Toy, mail: MailServer) -> None:
    def look(cursor: str | None) -> str | None:
        with build_sensor_context(toy.instance, cursor, resources={"platform": PlatformResource()}) as context:
            assert isinstance(notify_on_failure(context), SkipReason)
            return context.cursor

    cursor = look(None)
    toy.source.write_text("1 two\n")
    done = toy.execute()
    look(look(cursor))
    (received,) = mail.mails
    assert received["Subject"] == f"Tidemark: {ADDRESS} failed"
    assert "`tidemark toy history numbers`" in received.get_content()
    assert done.run_id in received.get_content()


def test_its_subjects_are_partitions_and_are_kept_up(toy: Toy) -> None:
    with build_sensor_context(toy.instance, resources={"platform": PlatformResource()}) as context:
        requests = sync_partitions(context).dynamic_partitions_requests
    assert [each.partition_keys for each in requests or []] == [["catalog/shop"]], (
        "what is not configured goes, the toy stays"
    )
    toy.execute()
    upkeep = [each.name for each in toy.defs.schedules or [] if each.name.startswith("upkeep_")]
    assert [each.partition_key for each in toy.tick(*upkeep)] == [ADDRESS]
    assert toy.execute("tidemark_upkeep").success
    assert [each.mode for each in toy.history] == ["upkeep", "full"]


def audited(monkeypatch: pytest.MonkeyPatch, result: CheckResult) -> list[list[str]]:
    """Gives the toy an audit with this result. Returns the runs that were open each time it was asked."""
    asked: list[list[str]] = []

    def audit(subject: Any) -> list[CheckResult]:
        assert subject.control.leases.holder(ADDRESS) is not None
        asked.append([each.run_id for each in subject.control.runs.running(ADDRESS)])
        return [result]

    monkeypatch.setattr(registry, "_registered", {"toy": replace(TOY, audit=audit)})
    return asked


def test_what_fails_its_audit_is_left_alone_and_upkeep_is_a_failed_run_in_its_history(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.execute()
    PlatformResource().platform.control.runs.begin(ADDRESS, "killed")
    asked = audited(monkeypatch, CheckResult("sum_agrees", False, "6 is not 7"))
    done = toy.execute("tidemark_upkeep")
    assert not done.success
    newest = toy.history[0]
    assert (newest.status, newest.mode, newest.dagster_run) == ("failed", "upkeep", done.run_id)
    assert "sum_agrees: 6 is not 7. What is published fails its checks" in str(newest.error)
    assert asked == [[newest.run_id]], "the killed run was recovered before"
    assert "forget" not in newest.detail["seconds"]


def test_the_number_of_checks_that_passed_is_shown_in_dagster(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    audited(monkeypatch, CheckResult("sum_agrees", True, "it is 6"))
    done = toy.execute("tidemark_upkeep")
    (made,) = [each.step_output_data for each in done.all_events if each.is_successful_output]
    assert made.metadata["checks passed"].value == 1
    assert toy.history[0].detail["checks passed"] == 1


def test_it_has_its_noun_with_the_verbs_and_documents_of_every_other(toy: Toy) -> None:
    app = typer.Typer()
    app.command()(status)
    noun(app, TOY)

    def said(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    ran = said("toy", "run", "numbers")
    assert (ran["subject"], ran["status"], ran["mode"], ran["rows"]) == (ADDRESS, "published", "full", {"added": 3})
    assert [each["state"] for each in said("status", ADDRESS)] == ["ok"]
    assert said("toy", "maintain", "numbers")["mode"] == "upkeep"
    assert [each["mode"] for each in said("toy", "history", "numbers")] == ["upkeep", "full"]
