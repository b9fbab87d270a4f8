"""Dagster's web UI as a process, and a browser to look at it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.services.needs import need
from tests.services.ports import free_port

TIDEMARK = Path(sys.executable).with_name("tidemark")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_SECONDS = 90
STOP_SECONDS = 30
PATIENCE = 60_000  # milliseconds for a page: the daemon works on the same cores


class WebUi:
    """A folder with a configuration, the command line, and the web UI that shows what came of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "tidemark.yaml"
        self.url = f"http://127.0.0.1:{free_port()}"

    def tidemark(self, *arguments: str) -> Any:
        """Runs a command to its end; what it says to programs."""
        command = [TIDEMARK, *arguments, "--json", "--config", self.config]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def ui(self) -> Iterator[None]:
        """The web UI, and the end of all of its processes: they are a group of their own."""
        with (self.folder / "ui.log").open("w") as log:
            command = [TIDEMARK, "ui", "--port", self.url.rpartition(":")[2], "--config", self.config]
            started = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
            try:
                self._wait(started)
                yield
            finally:
                stop(started)

    def _wait(self, started: subprocess.Popen[bytes]) -> None:
        latest = time.monotonic() + START_SECONDS
        while time.monotonic() < latest and started.poll() is None:
            try:
                if self.ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }"):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.5)
        pytest.fail(f"the web UI did not start:\n{(self.folder / 'ui.log').read_text()}")

    def ask(self, query: str) -> Any:
        """What the web UI's own interface answers."""
        request = urllib.request.Request(
            f"{self.url}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        return answer["data"]


def stop(started: subprocess.Popen[bytes]) -> None:
    """Asks the group to end, and insists after a while."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(started.pid, how)
        except ProcessLookupError:
            break
        latest = time.monotonic() + STOP_SECONDS
        while time.monotonic() < latest and group_lives(started):
            time.sleep(0.2)


def group_lives(started: subprocess.Popen[bytes]) -> bool:
    started.poll()  # a leader that nobody waits for would stay in its group for ever
    try:
        os.killpg(started.pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def browser() -> Iterator[Browser]:
    path = need("chromium")
    with sync_playwright() as playwright:
        # Playwright gives every browser it launches a new user-data-dir, and removes it.
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()
