"""Nobody sees what libraries and Java write, unless they ask for it; what Tidemark says always arrives."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.fast

# A command whose libraries write to both descriptors, log and warn, at its end too.
NOISY = """
import logging, os, subprocess, sys, warnings
import typer
from tidemark.cli import app
from tidemark.cli.output import print_json, say

def noisy(fail: bool = False, as_json: bool = typer.Option(False, "--json")):
    subprocess.run(["sh", "-c", "echo java; echo java >&2"])
    os.write(2, b"nanobind: leaked\\n")
    warnings.warn("old")
    logging.getLogger("py4j").warning("closing down")
    logging.getLogger("dagster").error("dagster's own")
    logging.getLogger("tidemark.runs").warning("could not tidy up")
    if fail:
        raise KeyError("a value of a row")
    say("said")
    print_json({"done": True})

built = app.build
def build():
    application = built()
    application.command()(noisy)
    return application
app.build = build
app.main()
"""


def ran(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", NOISY, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_only_what_tidemark_says_arrives() -> None:
    code, shown, said = ran("noisy")
    assert (code, json.loads(shown)) == (0, {"done": True})
    assert said.splitlines() == ["warning: could not tidy up", "said"]


def test_with_verbose_everything_arrives() -> None:
    code, shown, said = ran("--verbose", "noisy")
    assert (code, shown.splitlines()[0]) == (0, "java")
    for words in ("java", "nanobind: leaked", "closing down", "dagster's own", "could not tidy up", "said"):
        assert words in said


def test_json_logs_have_no_line_of_others() -> None:
    _, _, said = ran("--log", "json", "noisy")
    assert [json.loads(line)["message"] for line in said.splitlines()] == ["could not tidy up", "said"]


def test_an_error_without_a_name_is_said_without_its_words() -> None:
    code, shown, said = ran("noisy", "--fail")
    assert (code, shown) == (1, "")
    assert "UnexpectedFailure: KeyError at <string>:" in said
    assert "a value of a row" not in said
    assert "Traceback" in ran("-v", "noisy", "--fail")[2]


def test_an_error_without_a_name_is_json_for_programs() -> None:
    code, shown, _ = ran("noisy", "--fail", "--json")
    document = json.loads(shown)
    assert (code, document["error"], document["exit_code"]) == (1, "UnexpectedFailure", 1)
