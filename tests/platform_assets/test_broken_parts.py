"""One wrong file takes out itself and what reads it. Everything else loads, runs on schedule, and is listed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRunStatus, SensorResult, build_sensor_context
from typer.testing import CliRunner

from partitions.catalog import connections
from partitions.subjects import subjects
from platform_assets.dead_runs import cancel_orphans
from platform_assets.housekeeping import sync_partitions
from platform_assets.notify import ours
from resources.platform import PlatformResource
from tests.platform_assets.dagster_runs import a_run
from tidemark.cli.app import build
from tidemark.config import load_config
from tidemark.errors import ConfigError, UsageError
from tidemark.runs.system import known_subjects

CONFIG = """\
store: state
connectors: ["connectors/*.yaml"]
models: models
connections:
  shop: {app: sqlite, id: "1", url: "sqlite:///shop.db", schedule: "0 * * * *"}
  bad: {app: sqlite, id: "${NOBODY_SET_THIS}", url: "sqlite:///bad.db", schedule: "0 * * * *"}
"""
MANIFEST = """\
connector: {name}
kind: sql
settings: {{url: "sqlite:////data/shop.db"}}
schedule: "0 * * * *"
streams: [{{id: carts, key: [id]}}]
"""
MODEL = '/* ---\nschedule: "0 * * * *"\n--- */\nSELECT 1 AS one\n'
FILES = {
    "tidemark.yaml": CONFIG,
    "connectors/good.yaml": MANIFEST.format(name="good"),
    "connectors/bad.yaml": MANIFEST.format(name="bad") + "watches: 3\n",
    "connectors/torn.yaml": "connector: torn\nstreams: [\n",
    "models/silver/good.sql": MODEL,
    "models/silver/bad.sql": MODEL + "FROM\n",
    "models/gold/reader.sql": MODEL + "FROM silver.good JOIN silver.bad\n",
    "models/gold/last.sql": MODEL + "FROM gold.reader\n",
    "models/gold/landed.sql": MODEL + "FROM bronze.default.bad.carts\n",
    "models/gold/alone.sql": MODEL + "FROM silver.good\n",
    "models/twin/a.sql": "/* ---\nname: twin.one\n--- */\nSELECT 1 AS one\n",
    "models/twin/one.sql": "SELECT 1 AS one\n",
}
USABLE = ["catalog/shop", "stream/default/good/carts", "model/silver.good", "model/gold.alone"]
# Address → where it is broken, and why.
BROKEN = {
    "catalog/bad": "tidemark.yaml:6: connections.bad.id: the environment variable NOBODY_SET_THIS is not set.",
    "stream/default/bad": "connectors/bad.yaml:6: watches: unknown key. Did you mean 'watch'?",
    "stream/default/torn": "connectors/torn.yaml:3: this is not YAML",
    "model/silver.bad": "models/silver/bad.sql:5: this is not Spark SQL",
    "model/gold.reader": "models/gold/reader.sql:5: it reads silver.bad, and model/silver.bad is broken.",
    "model/gold.last": "models/gold/last.sql:5: it reads gold.reader, and model/gold.reader is broken.",
    "model/gold.landed": "models/gold/landed.sql:5: it reads bronze.default.bad.carts, and stream/default/bad is broken.",
    "model/twin.one": "has the name 'twin.one' too.",
}
DEFINITIONS = """
import json
from platform_assets.definitions import defs
repository = defs.get_repository_def()
print(json.dumps({
    "assets": sorted(key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()),
    "schedules": sorted(each.name for each in repository.schedule_defs),
}))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("TIDEMARK_CONFIG", str(tmp_path / "tidemark.yaml"))
    monkeypatch.delenv("NOBODY_SET_THIS", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return tmp_path


def shell(*arguments: str) -> Any:
    return CliRunner().invoke(build(), list(arguments))


def statuses(*arguments: str) -> list[dict[str, Any]]:
    done = shell(*arguments, "--json")
    assert done.exit_code == 1, done.output
    return list(json.loads(done.stdout))


@pytest.mark.fast
def test_the_code_location_loads_what_can_be_used_and_warns_of_the_rest(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEFINITIONS], cwd=project, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    own = [each for each in found["assets"] if each.startswith(("silver/", "gold/", "twin/"))]
    assert own == ["gold/alone", "silver/good"]
    assert any("good" in each for each in found["assets"])
    assert not any("bad" in each or "torn" in each for each in [*found["assets"], *found["schedules"]])
    assert len([each for each in found["schedules"] if each.startswith(("catalog_", "ingest_", "model_"))]) == 4, found
    for words in BROKEN.values():
        assert words in done.stderr
    assert done.stderr.count("connectors/bad.yaml:6") == 1


@pytest.mark.fast
def test_status_lists_everything_and_what_is_broken_with_its_line(project: Path) -> None:
    found = {each["subject"]: each for each in statuses("status")}
    assert set(found) == {*USABLE, *BROKEN}
    assert {found[each]["state"] for each in USABLE} == {"new"}
    for address, words in BROKEN.items():
        assert found[address]["state"] == "broken"
        assert words in found[address]["error"]
    (finding,) = found["stream/default/bad"]["findings"]
    assert (finding["file"], finding["line"], finding["key"]) == (f"{project}/connectors/bad.yaml", 6, "watches")
    done = shell("status")
    assert done.exit_code == 1
    assert f"stream/default/bad: {project}/connectors/bad.yaml:6: watches: unknown key." in done.stdout


@pytest.mark.fast
def test_a_broken_subject_can_be_asked_for_by_its_name(project: Path) -> None:
    assert [each["subject"] for each in statuses("status", "stream/default/bad/carts")] == ["stream/default/bad"]
    assert [each["subject"] for each in statuses("model", "status", "silver.bad")] == ["model/silver.bad"]
    assert [each["subject"] for each in statuses("stream", "status", "default/bad/carts")] == ["stream/default/bad"]
    assert shell("catalog", "status", "shop").exit_code == 0
    assert shell("model", "status", "silver.good").exit_code == 0


@pytest.mark.fast
@pytest.mark.parametrize(
    ("command", "address"),
    [
        ("catalog run bad", "catalog/bad"),
        ("stream run default/bad", "stream/default/bad"),
        ("stream run default/torn/carts", "stream/default/torn"),
        ("stream plan default/bad/carts", "stream/default/bad"),
        ("model run silver.bad", "model/silver.bad"),
        ("model run +gold.reader", "model/gold.reader"),
        ("model plan gold.landed", "model/gold.landed"),
        ("model run twin.one", "model/twin.one"),
        ("catalog maintain bad", "catalog/bad"),
    ],
)
def test_whoever_runs_a_broken_subject_gets_its_error_with_file_and_line(project: Path, command: str, address: str) -> None:
    wrong = shell(*command.split()).exception
    assert isinstance(wrong, ConfigError)
    assert wrong.exit_code == 2
    assert BROKEN[address] in str(wrong)
    assert not (project / "state").exists()


@pytest.mark.fast
def test_a_name_that_nobody_knows_stays_an_unknown_name(project: Path) -> None:
    for command in ("catalog run nope", "stream run default/nope", "model run silver.nope"):
        wrong = shell(*command.split()).exception
        assert isinstance(wrong, UsageError)
        assert not isinstance(wrong, ConfigError)


@pytest.mark.fast
def test_commands_that_read_everything_read_what_can_be_used(project: Path) -> None:
    listed = json.loads(shell("model", "list", "--json").stdout)
    assert [each["model"] for each in listed] == ["silver.good", "gold.alone"]
    assert shell("metrics").exit_code == 0


@pytest.mark.fast
def test_a_file_that_breaks_keeps_its_partitions_and_its_waiting_runs(project: Path) -> None:
    kept = ["stream/default/bad/carts", "model/silver.bad", "catalog/bad"]
    with DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(str(subjects.name), [*kept, "model/silver.gone"])
        instance.add_dynamic_partitions(str(connections.name), ["bad", "gone"])
        with build_sensor_context(instance=instance, resources={"platform": PlatformResource()}) as context:
            found = sync_partitions(context)
        assert isinstance(found, SensorResult)
        changed = {
            (type(each).__name__, key) for each in found.dynamic_partitions_requests or () for key in each.partition_keys
        }
        deleted = {key for kind, key in changed if kind.startswith("Delete")}
        assert deleted == {"model/silver.gone", "gone"}
        assert {key for kind, key in changed if kind.startswith("Add")} == {*USABLE, "shop"}
        config = load_config(project / "tidemark.yaml")
        waiting = {each: a_run(instance, DagsterRunStatus.QUEUED, each) for each in [*kept, "model/silver.gone"]}
        assert len(cancel_orphans(instance, lambda: known_subjects(config))) == 1
        assert all(ours(config, None)(waiting[each]) for each in kept)


@pytest.mark.fast
def test_a_file_that_nobody_can_read_takes_its_likely_name_from_nobody(project: Path) -> None:
    (project / "connectors" / "torn.yaml").write_text("connector: good\nstreams: [\n")
    found = [(each["subject"], each["state"]) for each in statuses("stream", "status")]
    assert ("stream/default/good/carts", "new") in found
    assert ("stream/default/good", "broken") in found


@pytest.mark.fast
def test_when_it_is_fixed_everything_is_as_before(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOBODY_SET_THIS", "2")
    (project / "connectors" / "bad.yaml").write_text(MANIFEST.format(name="bad"))
    (project / "connectors" / "torn.yaml").unlink()
    (project / "models" / "silver" / "bad.sql").write_text(MODEL)
    (project / "models" / "twin" / "a.sql").unlink()
    done = shell("status", "--json")
    assert done.exit_code == 0
    assert {each["state"] for each in json.loads(done.stdout)} == {"new"}
    assert len(json.loads(done.stdout)) == len(USABLE) + len(BROKEN) - 1


def test_a_run_of_all_models_runs_those_that_can_be_used_and_fails_for_the_rest(project: Path) -> None:
    """The whole way: the same definitions, the same job, as from the web UI."""
    tidemark = Path(sys.executable).with_name("tidemark")
    done = subprocess.run([tidemark, "model", "run", "--json"], cwd=project, capture_output=True, text=True, check=False)
    found = {each["subject"]: each for each in json.loads(done.stdout)}
    assert {each for each in found if found[each]["status"] == "published"} == {"model/silver.good", "model/gold.alone"}
    models = {address for address in BROKEN if address.startswith("model/")}
    assert {each for each in found if found[each]["status"] == "failed"} == models
    assert BROKEN["model/silver.bad"] in found["model/silver.bad"]["error"]
    assert done.returncode == 2
