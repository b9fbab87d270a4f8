"""The command line as a user has it: real processes, real exit codes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.catalog.harness import SqliteSource
from tests.services.commands import ran
from tests.services.spark_connect import spark_connect

FIELDS = [
    "subject", "run_id", "status", "mode", "reason", "reason_detail", "started_at", "finished_at", "seconds", "snapshot",
    "marker", "rows", "error", "detail",
]  # fmt: skip
TIDEMARK = str(Path(sys.executable).with_name("tidemark"))


class Shell:
    """A folder with a configuration and a source, and the command."""

    def __init__(self, folder: Path, remote: str | None = None) -> None:
        self.folder = folder
        self.spark = {"spark": {"remote": remote}} if remote else {}
        self.source = SqliteSource(folder / "shop.db")
        self.write_connection()

    def write_connection(self) -> None:
        shop = {"app": "sqlite", "id": "1", "url": self.source.url, "incremental-extraction": True}
        self.write(connections={"shop": shop})

    def write(self, **document: Any) -> None:
        (self.folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", **self.spark, **document}))

    @property
    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "TIDEMARK_CONFIG"} | {"COLUMNS": "200"}

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = ran(*arguments, cwd=self.folder, env=self.environment)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = ran(*arguments, "--json", cwd=self.folder, env=self.environment)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Its commands share a Spark Connect server, so that only that one waits for a JVM."""
    folder = tmp_path_factory.mktemp("shell")
    with spark_connect(tmp_path_factory.mktemp("spark-connect")) as remote:
        yield Shell(folder, remote)


@pytest.mark.fault
def test_a_day_at_the_shell_begins_with_a_full_run(shell: Shell) -> None:
    shell.source.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT)", "CREATE TABLE tag (name TEXT)")
    assert shell.json("catalog", "plan", "shop")["reason"] == "no state"
    first = shell.json("catalog", "run", "shop")
    assert list(first) == FIELDS
    assert (first["subject"], first["mode"], first["detail"]["labels"]["CREATED"]) == ("catalog/shop", "full", 2)
    assert first["rows"] == {"columns read": 3, "columns carried": 0}
    assert [(each["subject"], each["state"]) for each in shell.json("status")] == [("catalog/shop", "ok")]


@pytest.mark.fault
def test_a_change_is_planned_and_explained_at_the_shell(shell: Shell) -> None:
    (first,) = shell.json("catalog", "history", "shop")
    shell.source.execute("ALTER TABLE note ADD COLUMN author TEXT")
    planned = shell.json("catalog", "plan", "shop")
    assert [(unit["qualified_name"].rpartition("/")[2], unit["label"]) for unit in planned["units"]] == [("note", "UPDATED")]
    told = shell.json("catalog", "explain", "shop", "main.note")
    assert (told["label"], told["last read by run"]) == ("UPDATED", first["run_id"])
    assert told["digest before"] != told["digest now"]


@pytest.mark.fault
def test_the_next_run_at_the_shell_reads_what_changed(shell: Shell) -> None:
    (first,) = shell.json("catalog", "history", "shop")
    second = shell.json("catalog", "run", "shop")
    assert (second["mode"], second["rows"]) == ("incremental", {"columns read": 3, "columns carried": 1})
    assert shell.json("catalog", "run", "shop")["status"] == "unchanged"
    changes = shell.json("catalog", "diff", "shop", first["run_id"], "latest")
    assert [(c["what"], c["kind"], c["name"].rpartition("/")[2]) for c in changes] == [
        ("changed", "table", "note"), ("added", "column", "author"),
    ]  # fmt: skip
    columns = [json.loads(line) for line in shell("catalog", "state", "shop", "--kind", "column").splitlines()]
    assert [c["attributes"]["name"] for c in columns] == ["author", "body", "id", "name"]
    assert len(shell("catalog", "state", "shop", "--as-of", first["run_id"]).splitlines()) == 1 + 1 + 2 + 3
    assert [run["status"] for run in shell.json("catalog", "history", "shop")] == ["unchanged", "published", "published"]
    assert all(check["passed"] for check in shell.json("catalog", "check", "shop", "--full"))


@pytest.mark.fault
def test_a_run_is_taken_back_at_the_shell(shell: Shell) -> None:
    back = shell.json("catalog", "rollback", "shop", shell.json("catalog", "history", "shop")[-1]["run_id"])
    assert (back["mode"], back["status"]) == ("rollback", "published")
    assert "author" not in shell("catalog", "state", "shop")
    assert all(check["passed"] for check in shell.json("catalog", "check", "shop"))
    assert shell.json("catalog", "run", "shop")["detail"]["labels"]["UPDATED"] == 1
    assert "author" in shell("catalog", "state", "shop")


@pytest.mark.fault
def test_a_marker_is_rewound_and_old_runs_are_removed_at_the_shell(shell: Shell) -> None:
    assert "1970-01-02" in shell("catalog", "rewind", "shop", "--to", "0001-01-01T00:00:00Z", code=2)
    rewound = shell.json("catalog", "rewind", "shop", "--to", "2026-01-01T00:00:00Z", "--reason", "look again")
    assert (rewound["mode"], rewound["marker"]) == ("rewind", "2026-01-01T00:00:00Z")
    shown = shell.json("catalog", "marker", "shop")
    assert shown["marker"] == "2026-01-01T00:00:00Z"
    assert shown["moves"][0]["reason"] == "look again"
    assert all(check["passed"] for check in shell.json("catalog", "check", "shop"))

    (maintained,) = shell.json("catalog", "maintain", "--keep-runs", "1")
    assert maintained["mode"] == "upkeep"
    assert sum(facts["snapshots removed"] for facts in maintained["detail"]["upkeep"].values()) > 0
    assert all(check["passed"] for check in shell.json("catalog", "check", "shop"))
    assert shell.json("catalog", "run", "shop")["mode"] == "incremental"
    assert all(each["status"] == "ok" for each in shell.json("doctor"))


@pytest.mark.fault
def test_a_marker_is_reset_and_the_next_run_is_full(shell: Shell) -> None:
    assert "say why" in shell("catalog", "reset", "shop", code=2)
    shell("catalog", "reset", "shop", "--reason", "start again")
    assert shell.json("catalog", "marker", "shop")["marker"] is None
    assert shell.json("catalog", "plan", "shop")["reason"] == "no marker"
    again = shell.json("catalog", "run", "shop")
    assert (again["mode"], again["reason"]) == ("full", "no marker")
    assert all(check["passed"] for check in shell.json("catalog", "check", "shop"))


@pytest.mark.fault
def test_a_mirror_that_was_altered_makes_the_check_fail(shell: Shell) -> None:
    file = next((shell.folder / "state").rglob("table_0.json"))
    file.write_bytes(file.read_bytes().replace(b"note", b"nope"))
    assert "altered" in shell("catalog", "check", "shop", code=1)


def interrupted(shell: Shell, *arguments: str) -> tuple[int, str, list[str]]:
    """The installed command, stopped in its first step as a terminal does it: every process of the group gets Ctrl-C.

    Its exit code, its standard output, and what it said on the other one besides its progress.
    """
    gate = shell.folder / f"gate {len(arguments)}"
    paused = {"TIDEMARK_FAULT": "run.after_plan:pause", "TIDEMARK_FAULT_GATE": str(gate)}
    process = subprocess.Popen(
        [TIDEMARK, *arguments],
        cwd=shell.folder,
        env=shell.environment | paused,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not gate.with_suffix(".reached").exists():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    said, complaint = process.communicate(timeout=60)
    return process.returncode, said, [line for line in complaint.splitlines() if not line.startswith("catalog/shop: ")]


def test_a_run_shows_its_steps_and_no_line_of_spark_java_or_dagster(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.source.execute("CREATE TABLE note (id INTEGER PRIMARY KEY)")
    done = subprocess.run(
        [TIDEMARK, "catalog", "run", "shop", "--json"],
        cwd=tmp_path,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["status"] == "published"
    lines = done.stderr.splitlines()
    assert [line for line in lines if not line.startswith("catalog/shop: ")] == []
    assert {line.split()[1] for line in lines} >= {"list", "columns", "stage", "publish", "marker"}
    assert any(line.startswith("catalog/shop: columns took ") for line in lines)


STOPPED = "nothing more is published. The next run recovers automatically."


def test_ctrl_c_says_one_line_and_no_helper_prints_a_traceback(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.source.execute("CREATE TABLE note (id INTEGER PRIMARY KEY)")
    assert interrupted(shell, "catalog", "run", "shop") == (130, "", [f"Interrupted: {STOPPED}"])
    code, said, complaint = interrupted(shell, "catalog", "run", "shop", "--json")
    assert (code, json.loads(said), complaint) == (130, {"error": "Interrupted", "message": STOPPED, "exit_code": 130}, [])
    assert [run["status"] for run in shell.json("catalog", "history", "shop")] == ["failed", "failed"]


@pytest.mark.fault
def test_ctrl_c_ends_a_run_cleanly(shell: Shell) -> None:
    shell.source.execute("ALTER TABLE tag ADD COLUMN colour TEXT")
    assert interrupted(shell, "catalog", "run", "shop") == (130, "", [f"Interrupted: {STOPPED}"])
    assert shell.json("catalog", "history", "shop")[0]["status"] == "failed"
    assert shell.json("catalog", "plan", "shop")["labels"]["UPDATED"] == 1


@pytest.mark.fault
def test_streams_at_the_shell(shell: Shell) -> None:
    source = SqliteSource(shell.folder / "orders.db")
    source.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, changed DATETIME)",
        "INSERT INTO orders VALUES (1, '2026-01-01T10:00:00Z'), (2, '2026-01-02T10:00:00Z')",
    )
    orders = {"id": "shop.orders", "key": ["id"], "cursor": "changed", "deletes": "compare"}
    manifest = {"connector": "shop", "kind": "sql", "settings": {"url": source.url}, "streams": [orders]}
    (shell.folder / "shop.connector.yaml").write_text(yaml.safe_dump(manifest))
    shell.write(connectors=["*.connector.yaml"], tenants=["t1", "t2"])
    name = "t1/shop/shop.orders"
    planned = shell.json("stream", "plan", name)
    assert (planned["mode"], planned["reason"], planned["records"]) == ("full", "no state", 2)
    (first,) = shell.json("stream", "run", "t1/shop")
    assert list(first) == [field for field in FIELDS if field != "marker"]
    assert (first["status"], first["mode"], first["rows"]["landed"]) == ("published", "full", 2)
    source.execute("INSERT INTO orders VALUES (3, '2026-01-03T10:00:00Z')")
    planned = shell.json("stream", "plan", name)
    assert (planned["mode"], planned["reason"], planned["records"]) == ("incremental", "state found", 2)
    second = shell.json("stream", "run", name)
    assert (second["mode"], second["rows"]["landed"], second["rows"]["duplicates"]) == ("incremental", 1, 1)
    differs = shell.json("stream", "diff", name, "latest~1", "latest")
    assert (differs["versions"], differs["keys"], differs["deletions"], differs["rows_gone"]) == (1, 1, 0, 0)
    assert all(check["passed"] for check in shell.json("stream", "check", name))
    assert shell.json("stream", "show", name)["last_cursor"] == "2026-01-03T10:00:00Z"
    again = shell.json("stream", "rewind", name, "--to", "2026-01-02T00:00:00Z", "--dry-run")
    assert again["records that would be read"] == 2
    assert "say why" in shell("stream", "rewind", name, "--version", "1", code=2)
    assert "can only go back" in shell("stream", "rewind", name, "--to", "2027-01-01T00:00:00Z", "--reason", "x", code=2)
    shell("stream", "rewind", name, "--version", "1", "--reason", "restored")
    third = shell.json("stream", "run", name)
    assert (third["rows"]["landed"], third["rows"]["duplicates"]) == (0, 2)
    source.execute("DELETE FROM orders")
    assert "would delete 3 of 3" in shell("stream", "run", name, "--full", code=1)
    deleted = shell.json("stream", "run", name, "--full", "--allow-deletions")
    assert deleted["rows"]["landed"] == 3
    differs = shell.json("stream", "diff", name, third["run_id"], deleted["run_id"])
    assert (differs["versions"], differs["keys"], differs["deletions"]) == (0, 3, 3)
    (state,) = [each for each in shell.json("status", code=0) if each["subject"] == f"stream/{name}"]
    assert (state["state"], state["last_run"]["run_id"]) == ("ok", deleted["run_id"])

    shell.write_connection()


@pytest.mark.fault
def test_bronze_goes_back_to_what_a_run_left(shell: Shell) -> None:
    """The deletions of the last run are gone from Bronze, and found again by the next full run."""
    name = "t1/shop/shop.orders"
    shell.write(connectors=["*.connector.yaml"], tenants=["t1", "t2"])
    second = [run for run in shell.json("stream", "history", name) if run["status"] == "published"][-2]
    back = shell.json("stream", "rollback", name, second["run_id"])
    assert (back["mode"], back["status"], back["detail"]["rolled back to"]) == ("rollback", "published", second["run_id"])
    differs = shell.json("stream", "diff", name, second["run_id"], back["run_id"])
    assert (differs["versions"], differs["deletions"], differs["rows_gone"]) == (0, 0, 0)
    assert all(check["passed"] for check in shell.json("stream", "check", name))
    assert shell.json("stream", "run", name, "--full", "--allow-deletions")["rows"]["landed"] == 3

    shell("stream", "reset", name, "--reason", "start again")
    moves = [move["kind"] for move in shell.json("stream", "history", name, "--moves")]
    # The run after the first rewind found nothing new, and went back to where the rewind had come from.
    assert moves[-5:] == ["rewind", "commit", "rewind", "commit", "commit"]
    assert moves[0] == "reset"
    runs = [(run["mode"], run["status"]) for run in shell.json("stream", "history", name)]
    assert runs[1] == ("rollback", "published")
    said = shell("stream", "history", name) + shell("stream", "history", name, "--moves") + shell("stream", "list", "t1")
    assert "2026-01-0" not in said
    (kept,) = shell.json("stream", "maintain", "t1/shop")
    assert (kept["mode"], kept["error"]) == ("upkeep", None)
    assert shell.json("stream", "list", "t2") == []
    assert "Did you mean 'shop'" in shell("stream", "run", "t1/shopp", code=2)
    assert "no tenant 't3'" in shell("stream", "run", "t3/shop", code=2)
    shell.write_connection()


@pytest.mark.fault
def test_a_run_with_a_spark_of_its_own_goes_on_where_one_of_a_shared_spark_ended(shell: Shell) -> None:
    shell.spark = {}
    shell.write_connection()
    told = shell.json("catalog", "run", "shop")
    assert (told["mode"], told["detail"]["labels"]["UPDATED"], told["rows"]["columns read"]) == ("incremental", 1, 2)
    lake = shell.folder / "state" / "lake.db"
    assert lake.stat().st_mode & 0o077 == 0


@pytest.mark.fault
def test_a_check_with_a_spark_of_its_own_passes_what_both_have_published(shell: Shell) -> None:
    assert shell.spark == {}
    assert all(check["passed"] for check in shell.json("catalog", "check", "shop"))


def test_bad_usage_is_told_with_exit_code_2(shell: Shell) -> None:
    assert "Did you mean 'shop'?" in shell("catalog", "run", "shopp", code=2)
    assert "no kind 'tables'" in shell("catalog", "state", "shop", "--kind", "tables", code=2)
    assert "no run 'nonsense'" in shell("catalog", "diff", "shop", "nonsense", "latest", code=2)
    assert "two runs, or --staged" in shell("catalog", "diff", "shop", code=2)
    assert "UTC ISO 8601" in shell("catalog", "rewind", "shop", "--to", "yesterday", code=2)
    assert "can only go back" in shell("catalog", "rewind", "shop", "--to", "2099-01-01T00:00:00Z", code=2)
    assert "no table 'main.nope'" in shell("catalog", "explain", "shop", "main.nope", code=2)
    assert "no such file" in shell("config", "check", "--config", "elsewhere.yaml", code=2).lower()


def test_a_wrong_configuration_is_told_with_its_line(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    text = (tmp_path / "tidemark.yaml").read_text().replace("incremental-extraction", "incremental-extracton")
    (tmp_path / "tidemark.yaml").write_text(text)
    told = shell("config", "check", code=2)
    assert "tidemark.yaml:" in told
    assert "Did you mean 'incremental-extraction'" in told
    assert json.loads(shell("config", "schema"))["properties"]["connections"]


def test_an_unreachable_source_is_named_and_no_password_is_shown(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    url = "postgresql://someone:canary-password@127.0.0.1:1/shop"
    shell.write(connections={"shop": {"app": "postgresql", "id": "1", "url": url}})
    told = shell("catalog", "run", "shop", code=1)
    assert "SourceUnreachable" in told
    assert "canary-password" not in told
    assert shell.json("catalog", "run", "shop", code=1)["error"] == "SourceUnreachable"
    assert shell.json("status", code=1)[0]["state"] == "failed"
    assert "canary-password" not in shell("doctor", code=1)


def test_errors_are_json_for_programs_with_the_same_exit_codes(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    wrong = shell.json("catalog", "run", "shopp", code=2)
    assert list(wrong) == ["error", "message", "exit_code"]
    assert (wrong["error"], "Did you mean 'shop'?" in wrong["message"]) == ("UnknownConnection", True)
    assert shell.json("catalog", "run", code=2)["error"] == "UsageError"
    assert shell.json("catalog", "history", "shop") == []
    assert [each["state"] for each in shell.json("status")] == ["new"]
    assert "no subject 'catalog/shopp'" in shell.json("status", "catalog/shopp", code=2)["message"]
    (tmp_path / "tidemark.yaml").write_text("stor: x")
    assert shell.json("status", code=2)["error"] == "ConfigError"


def test_the_old_verbs_are_gone(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for verb in ("run", "plan", "ingest", "history", "diff", "state", "explain", "rollback", "check", "marker", "maintain"):
        assert "No such command" in shell(verb, code=2)


def test_the_doctor_names_files_that_others_may_read(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    SqliteSource(tmp_path / "shop.db").execute("CREATE TABLE note (id INTEGER)")
    assert {each["status"] for each in shell.json("doctor")} == {"ok"}
    control = tmp_path / "state" / "control.db"
    (tmp_path / "state" / "dagster").chmod(0o755)
    found = {each["what"]: each for each in shell.json("doctor", code=1)}
    assert found["file modes"]["status"] == "failed"
    assert "FilesExposed" in found["file modes"]["why"]
    assert f"chmod 700 {tmp_path / 'state' / 'dagster'}" in found["file modes"]["why"]
    assert str(control) not in found["file modes"]["why"], "opening it made it private"
