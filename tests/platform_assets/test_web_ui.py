"""The web UI as somebody sees it who opens it after a run at the command line."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect

from tests.catalog.harness import SqliteSource
from tests.services.web_ui import PATIENCE, WebUi, browser

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
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


class Shop(WebUi):
    """A small shop, its catalogue after one run, and the web UI that shows it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
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

    def run(self) -> str:
        """Runs the connection at the command line; the id of the run."""
        return str(self.tidemark("catalog", "run", "shop")["run_id"])


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
    with browser() as opened:
        yield opened


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
    for name in ("sync_partitions", "close_dead_runs", "notify_on_failure"):
        expect(page.get_by_text(name, exact=True)).to_be_visible(timeout=PATIENCE)
    selector = '{repositoryName: "__repository__", repositoryLocationName: "tidemark"}'
    query = f"sensorsOrError(repositorySelector: {selector}) {{... on Sensors {{results {{name sensorState {{status}}}}}}}}"
    found = shop[0].ask(f"{{{query}}}")["sensorsOrError"]["results"]
    assert {each["name"]: each["sensorState"]["status"] for each in found} == {
        "sync_partitions": "RUNNING",
        "close_dead_runs": "RUNNING",
        "notify_on_failure": "RUNNING",
    }
