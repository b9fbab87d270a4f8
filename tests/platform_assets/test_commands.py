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

    def json(self, *arguments: str, **options: Any) -> Any:
        return json.loads(self(*arguments, "--json", **options))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Its commands share a Spark Connect server, so that only that one waits for a JVM."""
    folder = tmp_path_factory.mktemp("shell")
    with spark_connect(tmp_path_factory.mktemp("spark-connect")) as remote:
        yield Shell(folder, remote)


@pytest.mark.fault
@pytest.mark.timeout(1800)
def test_a_day_at_the_shell(shell: Shell) -> None:
    shell.source.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT)", "CREATE TABLE tag (name TEXT)")
    assert shell.json("plan", "shop")["reason"] == "no state"
    first = shell.json("run", "shop")
    assert (first["mode"], first["labels"]["CREATED"], first["columns_read"]) == ("full", 2, 3)

    shell.source.execute("ALTER TABLE note ADD COLUMN author TEXT")
    planned = shell.json("plan", "shop")
    assert [(unit["qualified_name"].rpartition("/")[2], unit["label"]) for unit in planned["units"]] == [("note", "UPDATED")]
    told = shell.json("explain", "shop", "main.note")
    assert (told["label"], told["last read by run"]) == ("UPDATED", first["run_id"])
    assert told["digest before"] != told["digest now"]

    second = shell.json("run", "shop")
    assert (second["mode"], second["columns_read"], second["columns_carried"]) == ("incremental", 3, 1)
    assert shell.json("run", "shop")["status"] == "unchanged"
    changes = shell.json("diff", "shop", first["run_id"], "latest")
    assert [(c["what"], c["kind"], c["name"].rpartition("/")[2]) for c in changes] == [
        ("changed", "table", "note"), ("added", "column", "author"),
    ]  # fmt: skip
    columns = [json.loads(line) for line in shell("state", "shop", "--kind", "column").splitlines()]
    assert [c["attributes"]["name"] for c in columns] == ["author", "body", "id", "name"]
    assert len(shell("state", "shop", "--as-of", first["run_id"]).splitlines()) == 1 + 1 + 2 + 3
    assert [run["status"] for run in shell.json("history", "shop")] == ["unchanged", "published", "published"]
    assert all(check["passed"] for check in shell.json("check", "shop", "--full"))

    shell("rollback", "shop", first["run_id"])
    assert "author" not in shell("state", "shop")
    assert all(check["passed"] for check in shell.json("check", "shop"))
    assert shell.json("run", "shop")["labels"]["UPDATED"] == 1
    assert "author" in shell("state", "shop")

    shell("marker", "rewind", "shop", "--to", "2026-01-01T00:00:00Z")
    shown = shell.json("marker", "show", "shop")
    assert shown["marker"] == "2026-01-01T00:00:00Z"
    assert shown["moves"][0]["reason"] == "rewound by hand"

    maintained = shell.json("maintain", "--keep-runs", "1")
    assert maintained["shop"]["snapshots forgotten"] > 0
    assert all(check["passed"] for check in shell.json("check", "shop"))
    assert shell.json("run", "shop")["mode"] == "incremental"
    assert all(each["well"] for each in shell.json("doctor"))


@pytest.mark.fault
def test_a_mirror_that_was_altered_makes_the_check_fail(shell: Shell) -> None:
    file = next((shell.folder / "state").rglob("table_0.json"))
    file.write_bytes(file.read_bytes().replace(b"note", b"nope"))
    assert "altered" in shell("check", "shop", code=1)


@pytest.mark.fault
def test_ctrl_c_ends_a_run_cleanly(shell: Shell) -> None:
    shell.source.execute("ALTER TABLE tag ADD COLUMN colour TEXT")
    gate = shell.folder / "gate"
    paused = {"TIDEMARK_FAULT": "run.after_plan:pause", "TIDEMARK_FAULT_GATE": str(gate)}
    process = subprocess.Popen(
        [TIDEMARK, "run", "shop"], cwd=shell.folder, env=shell.environment | paused, stderr=subprocess.PIPE, text=True
    )
    while not gate.with_suffix(".reached").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in complaint
    assert shell.json("history", "shop")[0]["status"] == "failed"
    assert shell.json("plan", "shop")["labels"]["UPDATED"] == 1


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
    (first,) = shell.json("ingest", "t1/shop")
    assert (first["status"], first["mode"], first["landed"]) == ("published", "full", 2)
    source.execute("INSERT INTO orders VALUES (3, '2026-01-03T10:00:00Z')")
    second = shell.json("ingest", name)
    assert (second["mode"], second["landed"], second["duplicates"]) == ("incremental", 1, 1)
    assert shell.json("stream", "show", name)["last_cursor"] == "2026-01-03T10:00:00Z"
    again = shell.json("stream", "rewind", name, "--to", "2026-01-02T00:00:00Z", "--dry-run")
    assert again["records that would be read"] == 2
    assert "say why" in shell("stream", "rewind", name, "--version", "1", code=2)
    assert "can only go back" in shell("stream", "rewind", name, "--to", "2027-01-01T00:00:00Z", "--reason", "x", code=2)
    shell("stream", "rewind", name, "--version", "1", "--reason", "restored")
    third = shell.json("ingest", name)
    assert (third["landed"], third["duplicates"]) == (0, 2)
    source.execute("DELETE FROM orders")
    assert "would delete 3 of 3" in shell("ingest", name, "--full", code=1)
    assert shell.json("ingest", name, "--full", "--allow-deletions")["landed"] == 3
    shell("stream", "reset", name, "--reason", "start again")
    moves = [move["kind"] for move in shell.json("stream", "history", name)]
    # The run after the rewind found nothing new, and went back to where the rewind had come from.
    assert moves == ["reset", "commit", "rewind", "commit", "commit"]
    assert "2026-01-0" not in shell("stream", "history", name) + shell("stream", "list", "t1")
    assert shell.json("stream", "list", "t2") == []
    assert "Did you mean 'shop'" in shell("ingest", "t1/shopp", code=2)
    assert "no tenant 't3'" in shell("ingest", "t3/shop", code=2)
    shell.write_connection()


@pytest.mark.fault
def test_a_run_with_a_spark_of_its_own_goes_on_where_one_of_a_shared_spark_ended(shell: Shell) -> None:
    shell.spark = {}
    shell.write_connection()
    told = shell.json("run", "shop")
    assert (told["mode"], told["labels"]["UPDATED"], told["columns_read"]) == ("incremental", 1, 2)
    assert all(check["passed"] for check in shell.json("check", "shop"))


def test_bad_usage_is_told_with_exit_code_2(shell: Shell) -> None:
    assert "Did you mean 'shop'?" in shell("run", "shopp", code=2)
    assert "no kind 'tables'" in shell("state", "shop", "--kind", "tables", code=2)
    assert "no run 'nonsense'" in shell("diff", "shop", "nonsense", "latest", code=2)
    assert "two runs, or --staged" in shell("diff", "shop", code=2)
    assert "UTC ISO 8601" in shell("marker", "rewind", "shop", "--to", "yesterday", code=2)
    assert "can only go back" in shell("marker", "rewind", "shop", "--to", "2099-01-01T00:00:00Z", code=2)
    assert "no table 'main.nope'" in shell("explain", "shop", "main.nope", code=2)
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
    told = shell("run", "shop", code=1)
    assert "SourceUnreachable" in told
    assert "canary-password" not in told
    assert "canary-password" not in shell("doctor", code=1)
