import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidemark.cli.app import build

pytestmark = pytest.mark.fast


def test_logs_are_requested_for_the_processes_that_a_command_starts_too(monkeypatch):
    monkeypatch.delenv("TIDEMARK_LOG", raising=False)
    assert CliRunner().invoke(build(), ["--log", "json", "config", "schema"]).exit_code == 0
    assert os.environ["TIDEMARK_LOG"] == "json"


def test_without_the_option_the_environment_stays_as_it_is(monkeypatch):
    monkeypatch.delenv("TIDEMARK_LOG", raising=False)
    assert CliRunner().invoke(build(), ["config", "schema"]).exit_code == 0
    assert "TIDEMARK_LOG" not in os.environ


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_form_that_is_not_known_is_wrong_usage(monkeypatch, how):
    monkeypatch.setenv("TIDEMARK_LOG", "xml" if how == "variable" else "")
    done = CliRunner().invoke(build(), [*(["--log", "xml"] if how == "option" else []), "config", "schema"])
    assert done.exit_code == 2
    assert "'text', 'json'" in done.output


def failed(folder: Path, *arguments: str, log: str = "json") -> tuple[int, str, list[dict[str, Any]]]:
    """Exit code, standard output, and the lines of standard error of a command that fails."""
    (folder / "tidemark.yaml").write_text("store: state\nconections: {}\n")
    environment = {**os.environ, "TIDEMARK_LOG": log, "TIDEMARK_CONFIG": str(folder / "tidemark.yaml")}
    command = [sys.executable, "-c", "from tidemark.cli import main; main()", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(["status"], "ConfigError"), (["status", "--limti", "3"], "UsageError"), (["stauts"], "UsageError")],
)
def test_an_error_of_a_command_is_one_line_of_json_where_logs_are(tmp_path, arguments, name):
    code, shown, (line,) = failed(tmp_path, *arguments)
    assert (code, shown, line["level"]) == (2, "", "error")
    assert line["message"].startswith(f"{name}: ")


def test_the_option_counts_as_the_variable_does(tmp_path):
    code, _, (line,) = failed(tmp_path, "--log", "json", "status", "--limti", "3", log="")
    assert (code, line["level"]) == (2, "error")


def test_a_document_for_programs_stays_on_standard_output(tmp_path):
    code, shown, lines = failed(tmp_path, "status", "--json")
    assert (code, lines) == (2, [])
    assert json.loads(shown)["error"] == "ConfigError"
