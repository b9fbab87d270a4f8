"""The web UI as somebody sees it who opens it after a run at the command line."""

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
import yaml
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect, sync_playwright

from tests.catalog.harness import SqliteSource
from tests.services.needs import need
from tests.services.ports import free_port

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
TIDEMARK = Path(sys.executable).with_name("tidemark")
ASSETS = ["databases", "schemas", "tables", "columns", "current_state", "incremental_diff", "marker"]
CHECKS = [
    "carried_unchanged",
    "counts_add_up",
    "decision_matrix",
    "no_duplicate_names",
    "no_orphan_columns",
    "removals_within_guard",
]
LINEAGE = "/locations/tidemark/asset-groups/catalog/lineage"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_SECONDS = 120
STOP_SECONDS = 30
PATIENCE = 60_000  # milliseconds for a page: the daemon works on the same cores


class Shop:
    """A small shop, its catalogue after one run, and the web UI that shows it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "tidemark.yaml"
        source = SqliteSource(folder / "shop.db")
        source.execute(
            "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT)",
            "CREATE TABLE product (id INTEGER PRIMARY KEY, title TEXT, price NUMERIC(10, 2))",
            "CREATE TABLE invoice (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer (id), placed TEXT)",
            "CREATE TABLE line (invoice_id INTEGER REFERENCES invoice (id), product_id INTEGER REFERENCES product (id))",
            "CREATE TABLE payment (id INTEGER PRIMARY KEY, invoice_id INTEGER REFERENCES invoice (id), amount REAL)",
            "CREATE VIEW debtor AS SELECT customer_id FROM invoice LEFT JOIN payment ON invoice_id = invoice.id",
        )
        document = {
            "store": "store",
            "dagster-home": "dagster",
            "spark": {"master": "local[1]"},
            "connections": {
                "shop": {"app": "sqlite", "id": "1700000000", "url": source.url, "incremental-extraction": True}
            },
        }
        self.config.write_text(yaml.safe_dump(document))
        self.url = f"http://127.0.0.1:{free_port()}"

    def run(self) -> str:
        """Runs the connection at the command line; the id of the run."""
        command = [TIDEMARK, "run", "shop", "--json", "--config", self.config]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(json.loads(done.stdout)["run_id"])

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


def box(found: Locator) -> FloatRect:
    """Where it is on the page."""
    place = found.bounding_box()
    assert place
    return place


def around(boxes: list[FloatRect], margin: int = 24) -> FloatRect:
    """What holds all of them."""
    left, top = min(each["x"] for each in boxes) - margin, min(each["y"] for each in boxes) - margin
    right = max(each["x"] + each["width"] for each in boxes) + margin
    bottom = max(each["y"] + each["height"] for each in boxes) + margin
    return {"x": left, "y": top, "width": right - left, "height": bottom - top}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = need("chromium")
    with sync_playwright() as playwright:
        # Playwright gives every browser it launches a new user-data-dir, and removes it.
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shop(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, str]]:
    """The shop and its run. After the browser: without one, nothing needs to be started."""
    made = Shop(tmp_path_factory.mktemp("web"))
    run_id = made.run()
    with made.ui():
        yield made, run_id


@pytest.fixture
def page(chromium: Browser, shop: tuple[Shop, str]) -> Iterator[Page]:
    context = chromium.new_context(base_url=shop[0].url, viewport={"width": 2400, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    yield page
    context.close()


def node(page: Page, asset: str) -> Locator:
    """The node of the lineage graph that an asset is drawn as."""
    return page.locator("foreignObject").filter(has=page.get_by_text(asset, exact=True))


def test_the_lineage_page_shows_seven_assets_from_left_to_right(page: Page) -> None:
    page.goto(LINEAGE)
    for asset in ASSETS:
        expect(node(page, asset)).to_be_visible(timeout=PATIENCE)
    expect(node(page, "current_state")).to_contain_text("6 / 6 Passed", timeout=PATIENCE)
    expect(node(page, "incremental_diff")).to_contain_text("1 / 1 Passed", timeout=PATIENCE)
    edges = [box(node(page, asset))["x"] for asset in ASSETS]
    assert edges == sorted(set(edges)), "from left to right"
    if os.environ.get("TIDEMARK_SCREENSHOT"):
        page.screenshot(path=ROOT / "docs" / "lineage.png", clip=around([box(node(page, asset)) for asset in ASSETS]))


def test_the_checks_of_the_state_are_shown_passed(page: Page) -> None:
    page.goto("/assets/current_state?view=checks")
    for name in CHECKS:
        expect(page.get_by_text(name, exact=True).first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(len(CHECKS), timeout=PATIENCE)
    expect(page.get_by_text("blocking", exact=True)).to_be_visible(timeout=PATIENCE)


def test_every_connection_is_a_partition(page: Page) -> None:
    page.goto("/assets/current_state?view=partitions")
    expect(page.get_by_text("shop", exact=True).first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("Materialized (1)")).to_be_visible(timeout=PATIENCE)


def test_a_run_of_the_command_line_is_listed(page: Page, shop: tuple[Shop, str]) -> None:
    _, run_id = shop
    page.goto("/runs")
    link = page.locator(f'a[href="/runs/{run_id}"]').first
    expect(link).to_be_visible(timeout=PATIENCE)
    for told in ("catalog", "Success", "tidemark/started-by: command line"):
        expect(page.get_by_text(told, exact=True).first).to_be_visible(timeout=PATIENCE)


def test_the_sensors_that_keep_order_run_from_the_start(page: Page, shop: tuple[Shop, str]) -> None:
    page.goto("/automation")
    for name in ("connections_in_step", "sources_changed", "failure_told"):
        expect(page.get_by_text(name, exact=True)).to_be_visible(timeout=PATIENCE)
    selector = '{repositoryName: "__repository__", repositoryLocationName: "tidemark"}'
    query = f"sensorsOrError(repositorySelector: {selector}) {{... on Sensors {{results {{name sensorState {{status}}}}}}}}"
    found = shop[0].ask(f"{{{query}}}")["sensorsOrError"]["results"]
    # Runs by change are somebody's decision; the other two only keep things in order.
    assert {each["name"]: each["sensorState"]["status"] for each in found} == {
        "connections_in_step": "RUNNING",
        "failure_told": "RUNNING",
        "sources_changed": "STOPPED",
    }
