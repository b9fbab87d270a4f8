"""A system of a test gets its noun: `run`, `status`, `history` and `maintain`, with the same JSON as every other."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from tidemark.cli.noun import noun
from tidemark.cli.status import status
from tidemark.config import load_config
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import SourceUnreachable
from tidemark.platform import Platform
from tidemark.runs import Confirm, Mode, Reason, Run, Visible
from tidemark.runs import system as registry
from tidemark.runs.system import Configured, System

pytestmark = pytest.mark.fast

FIELDS = [
    "subject", "run_id", "status", "mode", "reason", "reason_detail", "started_at", "finished_at", "seconds", "snapshot",
    "rows", "error", "detail",
]  # fmt: skip


@dataclass(frozen=True)
class Clock:
    """A subject of the toy system: it has a name and nothing to publish."""

    platform: Platform
    name: str
    compacted_to: list[int] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"feed/{self.name}"

    @property
    def control(self) -> ControlDatabase:
        return self.platform.control

    def visible(self) -> Visible | None:
        return None

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> dict[str, Any]:
        return {}

    def fence(self, run: Any) -> None: ...

    def conclude(self, run: RunRecord, seen: Visible | None, confirm: Confirm) -> None: ...

    def undo(self, run: RunRecord) -> None: ...

    def repair(self, confirm: Confirm) -> None: ...

    def tidy(self, run_id: str) -> None: ...

    def close(self) -> None: ...

    def busy(self) -> str | None:
        return None

    def upkeep(self, keep_runs: int) -> list[Any]:
        return []

    def record_now(self) -> dict[str, Any]:
        return {}

    def compacted(self, before: int, after: int, confirm: Confirm) -> None: ...

    def forget(self, keep_runs: int) -> int:
        return keep_runs


def run_clock(clock: Clock, run_id: str, *, full: bool) -> RunRecord:
    with Run(clock, run_id) as run:
        run.decide(Mode.FULL if full else Mode.INCREMENTAL, Reason.REQUESTED if full else Reason.STATE_FOUND, "by hand")
        with run.step("read"):
            if clock.name == "broken":
                raise SourceUnreachable("broken: nobody answers.")
        return run.finish("published", snapshot=7, detail={"rows": {"read": 3}, "ticks": 12})


TOY = System(
    noun="feed",
    summary="Clocks that tick.",
    form="CLOCK",
    configured=lambda config: [Configured(f"feed/{name}", "0 * * * *") for name in ("tick", "tock", "broken")],
    open=lambda platform, name: Clock(platform, name),
    run=run_clock,
    compactor=lambda subject: None,  # type: ignore[arg-type,return-value]
)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[typer.Typer]:
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state"}))
    monkeypatch.setenv("TIDEMARK_CONFIG", str(tmp_path / "tidemark.yaml"))
    monkeypatch.setattr(registry, "installed_systems", dict)
    monkeypatch.setattr(registry, "_registered", {})
    made = typer.Typer()
    made.command()(status)
    noun(made, TOY)
    return made


def said(app: typer.Typer, *arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_one_subject_is_one_object_and_several_are_a_list(app):
    one = said(app, "feed", "run", "tick")
    assert list(one) == FIELDS
    assert (one["subject"], one["status"]) == ("feed/tick", "published")
    assert (one["mode"], one["reason"]) == ("incremental", "state found")
    assert (one["reason_detail"], one["rows"], one["detail"], one["snapshot"]) == (
        "by hand",
        {"read": 3},
        {"ticks": 12, "mark_version": 0},
        7,
    )
    assert list(one["seconds"]) == ["read"]
    assert said(app, "feed", "run", "tock", "--full")["mode"] == "full"
    several = said(app, "feed", "run", "tick", "tock")
    assert [each["subject"] for each in several] == ["feed/tick", "feed/tock"]


def test_of_several_the_others_run_and_the_failed_one_is_in_the_list(app):
    broken, tick = said(app, "feed", "run", "broken", "tick", code=1)
    assert list(broken) == list(tick) == FIELDS
    assert (broken["status"], broken["error"]) == ("failed", "SourceUnreachable: broken: nobody answers.")
    assert tick["status"] == "published"
    with pytest.raises(SourceUnreachable):
        said(app, "feed", "run", "broken")


def test_a_run_that_never_began_has_the_same_fields(app, tmp_path):
    control = ControlDatabase(load_config().control)
    with control.leases.hold("feed/tick", "another"):
        tick, tock = said(app, "feed", "run", "tick", "tock", code=1)
    assert list(tick) == FIELDS
    assert (tick["status"], tick["run_id"], tick["error"].partition(":")[0]) == ("failed", None, "RunInProgress")
    assert tock["status"] == "published"


def test_history_has_the_same_objects_newest_first(app):
    first, second = said(app, "feed", "run", "tick"), said(app, "feed", "run", "tick", "--full")
    assert said(app, "feed", "history", "tick") == [second, first]
    assert said(app, "feed", "history", "tick", "--limit", "1") == [second]
    assert said(app, "feed", "history", "tock") == []
    shown = CliRunner().invoke(app, ["feed", "history", "tick"]).stdout
    assert second["run_id"][:8] in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_upkeep_is_a_run_too_and_takes_all_subjects_without_a_name(app):
    done = said(app, "feed", "maintain", "--keep-runs", "4")
    assert [(each["subject"], each["mode"], each["status"]) for each in done] == [
        (f"feed/{name}", "upkeep", "unchanged") for name in ("tick", "tock", "broken")
    ]
    assert done[0]["detail"]["objects removed"] == 4
    assert said(app, "feed", "maintain", "tick")["subject"] == "feed/tick"


@pytest.fixture
def left_behind(tmp_path: Path) -> Path:
    """A temporary file that a killed writer left next to objects, long ago."""
    left = tmp_path / "state" / "feed" / "tick" / ".tidemark-1-x.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    return left


def test_upkeep_of_everything_removes_old_temporary_files_wherever_they_are(app, left_behind):
    young = left_behind.with_name(".tidemark-1-y.tmp")
    young.write_bytes(b"half")
    said(app, "feed", "maintain")
    assert not left_behind.exists()
    assert young.exists()


def test_upkeep_of_one_subject_does_not_look_through_the_whole_store(app, left_behind):
    said(app, "feed", "maintain", "tick")
    assert left_behind.exists()


def test_status_of_the_noun_and_of_everything_are_the_same(app):
    said(app, "feed", "run", "tick")
    with pytest.raises(SourceUnreachable):
        said(app, "feed", "run", "broken")
    every = said(app, "status", code=1)
    assert [(each["subject"], each["state"]) for each in every] == [
        ("feed/tick", "ok"), ("feed/tock", "new"), ("feed/broken", "failed"),
    ]  # fmt: skip
    assert said(app, "feed", "status", code=1) == every
    assert said(app, "feed", "status", "tick", "tock") == every[:2]
    assert said(app, "status", "feed/tick") == every[:1]
    assert every[0]["last_run"]["mode"] == "incremental"
    shown = CliRunner().invoke(app, ["status"])
    assert shown.exit_code == 1
    assert "SourceUnreachable: broken: nobody answers." in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_a_wrong_name_is_told_with_the_nearest(app):
    for arguments in (("feed", "run", "tik"), ("feed", "status", "tik"), ("feed", "history", "tik")):
        done = CliRunner().invoke(app, [*arguments])
        assert "no feed 'tik'" in str(done.exception)
        assert "Did you mean 'tick'?" in str(done.exception)
    assert "no subject 'feed/tik'" in str(CliRunner().invoke(app, ["status", "feed/tik"]).exception)


def test_with_json_logs_progress_and_failures_are_lines_of_json_and_said_once(app, monkeypatch, capfd):
    monkeypatch.setenv("TIDEMARK_LOG", "json")
    done = CliRunner().invoke(app, ["feed", "run", "broken", "tick"])
    assert done.exit_code == 1
    lines = [json.loads(line) for line in (done.stderr + capfd.readouterr().err).splitlines()]
    events = [(line["subject"], line["event"]) for line in lines if "event" in line]
    assert events.count(("feed/tick", "step_started")) == 1
    (failure,) = [line for line in lines if "message" in line]
    assert (failure["level"], failure["message"]) == ("error", "SourceUnreachable: broken: nobody answers.")


def test_with_json_logs_what_a_command_has_to_say_is_a_line_of_json(app, monkeypatch):
    monkeypatch.setenv("TIDEMARK_LOG", "json")
    (line,) = CliRunner().invoke(app, ["feed", "history", "tick"]).stderr.splitlines()
    assert json.loads(line)["message"] == "feed/tick was never run"


NOT_NEEDED = ("pyspark", "dagster", "pyiceberg", "pyarrow", "alembic", "boto3")


def test_status_imports_neither_spark_nor_dagster_nor_the_lake(tmp_path: Path) -> None:
    models = tmp_path / "models" / "silver"
    models.mkdir(parents=True)
    (models / "one.sql").write_text("SELECT 1 AS one")
    connection = {"app": "sqlite", "id": "1", "url": f"sqlite:///{tmp_path}/shop.db"}
    manifest = {
        "connector": "shop", "kind": "sql", "settings": {"url": f"sqlite:///{tmp_path}/shop.db"},
        "streams": [{"id": "shop.orders", "key": ["id"], "cursor": "changed"}],
    }  # fmt: skip
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(manifest))
    given = {"store": "state", "connections": {"shop": connection}, "connectors": ["shop.yaml"], "models": "models"}
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump(given))
    ControlDatabase(load_config(tmp_path / "tidemark.yaml").control).migrate()
    code = f"""
import sys
from tidemark.cli.app import build
sys.argv = ["tidemark", "status", "--json"]
try:
    build()()
except SystemExit as ended:
    print(ended.code, [name for name in {NOT_NEEDED!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [each["subject"] for each in json.loads(done.stdout)] == [
        "catalog/shop", "stream/default/shop/shop.orders", "model/silver.one",
    ]  # fmt: skip
    assert done.stderr.splitlines()[-1] == "0 []"
