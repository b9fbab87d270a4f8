"""`tidemark model` as a user has it: real processes, real exit codes, one Spark for all of them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from tests.models.folder import LINES, Folder
from tests.services.commands import ran
from tests.services.spark_connect import spark_connect
from tidemark.config import load_config
from tidemark.control import ControlDatabase

HEADER = """\
/* ---
materialization: incremental
incremental:
  strategy: merge
  merge: {unique_key: [delivery, line], filter_column: delivery}
  on_schema_change: sync_all_columns
checks:
  - not_null: sku
--- */
"""
BY_DAY = """\
/* ---
materialization: incremental
incremental: {strategy: delete_insert, delete_insert: {filter_column: at}}
partitions: {by: day, start: 2024-03-01}
--- */
"""


class Shell(Folder):
    """A folder of models over deliveries, and the command."""

    def __init__(self, path: Path, remote: str | None = None) -> None:
        self.spark = {"spark": {"remote": remote}} if remote else {}
        super().__init__(path)
        manifest = path / "drops.connector.yaml"
        given = yaml.safe_load(manifest.read_text()) | {"settings": {"path": str(path / "in")}}
        manifest.write_text(yaml.safe_dump(given, sort_keys=False))
        (path / "in").mkdir()

    def configure(self, **config: Any) -> None:
        super().configure(**self.spark, **config)

    def lines(self, columns: str) -> None:
        self.write("silver/lines.sql", f"{HEADER}SELECT record.delivery, record.line, {columns} FROM {LINES}")

    def deliver(self, delivery: int, *skus: str) -> None:
        rows = [f"{delivery},{line},{sku},{line}.50" for line, sku in enumerate(skus, 1)]
        (self.path / "in" / f"{delivery}.csv").write_text("\n".join(["delivery,line,sku,price", *rows]) + "\n")
        self("stream", "run", "default/drops")

    def ran(self, *arguments: str, code: int) -> CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "TIDEMARK_CONFIG"} | {"COLUMNS": "200"}
        done = ran(*arguments, cwd=self.path, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = self.ran(*arguments, code=code)
        return done.stdout if code == 0 else done.stdout + done.stderr

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.ran(*arguments, "--json", code=code).stdout)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("shell")
    with spark_connect(tmp_path_factory.mktemp("spark-connect")) as remote:
        yield Shell(folder, remote)


@pytest.mark.service
def test_a_day_with_models_begins_with_a_plan(shell: Shell) -> None:
    shell.lines("record.sku, record.price")
    shell.write("gold/sums.sql", "SELECT delivery, sum(price) AS worth FROM silver.lines GROUP BY delivery")
    shell.deliver(1, "a", "b")
    (planned,) = shell.json("model", "plan", "silver.lines")
    assert (planned["action"], planned["reason"], planned["rows_expected"]) == ("full", "no table", 2)


@pytest.mark.service
def test_all_models_run_in_dependency_order_and_are_checked(shell: Shell) -> None:
    first = shell.json("model", "run")
    assert [(run["subject"], run["status"], run["rows"]) for run in first] == [
        ("model/silver.lines", "published", {"inserted": 2}),
        ("model/gold.sums", "published", {"inserted": 1}),
    ]
    assert first[0]["detail"]["checks"] == {"not_null__sku": True}
    assert shell.json("model", "run", "silver.lines")["status"] == "unchanged"
    assert shell.json("model", "check") == [
        {
            "subject": "model/silver.lines",
            "name": "not_null__sku",
            "passed": True,
            "summary": "sku: no NULLs",
            "facts": {"failed": 0, "rows": 0, "examples": []},
            "blocking": True,
        }
    ]


@pytest.mark.service
def test_a_column_goes_which_the_plan_says_in_red_and_it_can_be_brought_back(shell: Shell) -> None:
    shell.lines("record.sku")
    shell.write("gold/sums.sql", "SELECT delivery, count(*) AS lines FROM silver.lines GROUP BY delivery")
    (planned,) = shell.json("model", "plan", "silver.lines")
    assert [(step["kind"], step["destructive"]) for step in planned["steps"]] == [("drop", True)]
    assert "DESTRUCTIVE price" in shell("model", "plan", "silver.lines")
    assert len(shell.json("model", "history", "silver.lines")) == 2, "a plan is no run"
    shell("model", "run")
    (state,) = shell.json("model", "state", "silver.lines")
    assert [each["name"] for each in state["state"]["dropped"]] == ["price"]
    assert list(state["state"]["columns"]) == ["delivery", "line", "sku"]
    shell.lines("record.sku, record.price")
    assert shell.json("model", "restore", "silver.lines", "price")["status"] == "published"
    (state,) = shell.json("model", "state", "silver.lines")
    assert (state["state"]["dropped"], "price" in state["state"]["columns"]) == ([], True)


@pytest.mark.service
def test_a_column_comes_and_old_rows_are_filled_on_request(shell: Shell) -> None:
    shell.deliver(2, "c")
    shell("model", "run", "silver.lines")
    shell.lines("record.sku, record.price, upper(record.sku) AS name")
    shell("model", "run", "silver.lines")
    filled = shell.json("model", "backfill", "silver.lines", "name", "--where", "line = 2")
    assert (filled["mode"], filled["status"], filled["rows"]["updated"]) == ("backfill", "published", 1)
    differs = shell.json("model", "diff", "silver.lines", "latest~1", "latest")
    assert (differs["rows_added"], differs["rows_removed"], differs["columns_added"]) == (1, 1, [])


@pytest.mark.service
def test_a_model_goes_back_to_what_a_run_left_columns_and_all(shell: Shell) -> None:
    first = shell.json("model", "history", "silver.lines")[-1]
    back = shell.json("model", "rollback", "silver.lines", first["run_id"])
    assert (back["mode"], back["status"], back["rows"]["deleted"] > 0) == ("rollback", "published", True)
    differs = shell.json("model", "diff", "silver.lines", first["run_id"], back["run_id"])
    assert (differs["rows_added"], differs["rows_removed"]) == (0, 0)
    (state,) = shell.json("model", "state", "silver.lines")
    assert sorted(state["state"]["columns"]) == ["delivery", "line", "price", "sku"]
    again = shell.json("model", "run", "silver.lines")
    assert (again["status"], again["rows"]["inserted"]) == ("published", 1)


@pytest.mark.service
def test_a_last_value_goes_back_by_hand_and_never_forward(shell: Shell) -> None:
    assert "say why" in shell("model", "rewind", "silver.lines", "--to", "1", code=2)
    assert "can only go back" in shell("model", "rewind", "silver.lines", "--to", "9", "--reason", "x", code=2)
    assert shell.json("model", "rewind", "silver.lines", "--to", "1", "--reason", "late rows")["version"] > 0
    assert shell.json("model", "run", "silver.lines")["rows"].get("inserted", 0) == 0
    shell("model", "reset", "gold.sums", "--reason", "start again")
    assert shell.json("model", "state", "gold.sums") == [{"subject": "model/gold.sums", "state": None}]
    assert {each["subject"]: each["state"] for each in shell.json("model", "status")} == {
        "model/silver.lines": "ok", "model/gold.sums": "ok",
    }  # fmt: skip
    upkept = shell.json("model", "maintain", "silver.lines")
    assert (upkept["mode"], upkept["error"]) == ("upkeep", None)


@pytest.mark.service
def test_what_a_check_refuses_is_not_published_and_what_reads_it_does_not_run(shell: Shell) -> None:
    shell.deliver(3, "")
    told = shell("model", "run", "silver.lines+", code=1)
    assert "ChecksFailed: model/silver.lines: nothing was published and the mark did not move. not_null__sku" in told
    assert "gold.sums: skipped, since a model that it reads failed." in told
    newest = shell.json("model", "history", "silver.lines", "--limit", "1")[0]
    assert newest["status"] == "failed"
    failed = {each["subject"]: each for each in shell.json("model", "status", code=1)}["model/silver.lines"]
    assert (failed["state"], failed["error"].partition(":")[0]) == ("failed", "ChecksFailed")


@pytest.mark.service
def test_lineage_knows_what_the_lake_has(shell: Shell) -> None:
    shell.write("silver/all.sql", f"SELECT record.* FROM {LINES}")
    told = shell.json("model", "lineage", "silver.all", "SKU")
    assert told["columns"] == [
        {
            "column": "sku",
            "from": [{"table": LINES, "column": "record.sku"}],
            "origins": [{"table": LINES, "column": "record.sku"}],
            "read_by": [],
            "known": True,
        }
    ]


@pytest.mark.service
def test_windows_of_a_model_are_rebuilt_by_their_keys(shell: Shell) -> None:
    """Deliveries 1 and 2 have come, and a third that a check of silver.lines refuses."""
    shell.write("silver/days.sql", f"{BY_DAY}SELECT make_date(2024, 3, record.delivery) AS at, record.sku FROM {LINES}")
    shell.write("gold/late.sql", f"{BY_DAY}SELECT make_date(2024, 3, delivery) AS at FROM silver.lines")
    one = shell.json("model", "run", "silver.days", "--partition", "2024-03-02")
    assert (one["status"], one["rows"]) == ("published", {"inserted": 1})
    (plan,) = shell.json("model", "plan", "silver.days", "--partition", "2024-03-01..2024-03-02")
    told = ("incremental", "a window is rebuilt: 2024-03-01 … 2024-03-03", 3)
    assert (plan["action"], plan["reason"], plan["rows_expected"]) == told
    two = shell.json("model", "run", "silver.days", "--partition", "2024-03-01..2024-03-02")
    assert (two["mode"], two["rows"]) == ("incremental", {"inserted": 3, "deleted": 1})
    assert (two["reason"], two["reason_detail"]) == ("a window is rebuilt", "2024-03-01 … 2024-03-03")
    every = shell.json("model", "run", "silver.days")
    assert (every["mode"], every["rows"]) == ("incremental", {"inserted": 4, "deleted": 3})
    told = shell("model", "run", "silver.lines", "gold.late", code=1)
    assert "ChecksFailed: model/silver.lines" in told
    assert "gold.late: skipped, since a model that it reads failed." in told, "though it is another run in Dagster"


def test_a_model_that_is_being_run_is_told_as_such_and_not_as_skipped(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write("silver/one.sql", "SELECT 1 AS one")
    shell.write("gold/two.sql", "SELECT one + 1 AS two FROM silver.one")
    with ControlDatabase(load_config(shell.config).control).leases.hold("model/silver.one", "r1"):
        told = shell("model", "run", code=1)
    assert "RunInProgress: " in told
    assert "gold.two: skipped, since a model that it reads failed." in told
    assert "silver.one: skipped" not in told


def test_what_is_wrong_ends_with_exit_code_2_and_the_nearest_name(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write("silver/lines.sql", "SELECT 1 AS one")
    assert [model["model"] for model in shell.json("model", "list")] == ["silver.lines"]
    assert "no model 'silver.line'. Did you mean 'silver.lines'?" in shell("model", "run", "silver.line", code=2)
    assert "has no column 'on'. Did you mean 'one'?" in shell("model", "lineage", "silver.lines", "on", code=2)
    assert shell.json("model", "state") == [{"subject": "model/silver.lines", "state": None}]
    assert shell.json("model", "history", "silver.lines") == []
    shell.write("silver/days.sql", f"{BY_DAY}SELECT current_date() AS at")
    for asked, words in {
        ("silver.lines", "2024-03-02"): "silver.lines: no partitions",
        ("silver.days", "soon"): "'soon' is no partition by day",
        ("silver.*", "2024-03-02", "--full"): "not of a run that rebuilds everything",
    }.items():
        model, key, *more = asked
        for verb in ("run", "plan"):
            assert words in shell("model", verb, model, "--partition", key, *more, code=2)
    shell.write("silver/lines.sql", "SELECT one FROM silver.nothing")
    assert "models/silver/lines.sql:1: there is no table silver.nothing" in shell("model", "list", code=2)
    shell.configure()
    assert "there are no models. Write `models: FOLDER`" in shell("model", "run", code=2)
