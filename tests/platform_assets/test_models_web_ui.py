"""Models in the web UI, after a run at the command line: lineage of assets, lineage of columns, checks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.models.folder import LINES, Folder
from tests.services.web_ui import PATIENCE, WebUi, browser

pytestmark = pytest.mark.browser

HEADER = """\
/* ---
description: What was delivered, line by line
materialization: incremental
incremental: {strategy: merge, merge: {unique_key: [delivery, line]}, on_schema_change: sync_all_columns}
checks: [{unique: [delivery, line]}]
--- */
"""


class Deliveries(WebUi):
    """Two models over deliveries that came as a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = Folder(folder)
        self.files.configure(
            models="models", **{"store": "store", "dagster-home": "dagster", "spark": {"master": "local[1]"}}
        )
        manifest = folder / "drops.connector.yaml"
        settings = yaml.safe_load(manifest.read_text()) | {"settings": {"path": str(folder / "in")}}
        manifest.write_text(yaml.safe_dump(settings, sort_keys=False))
        (folder / "in").mkdir()
        (folder / "in" / "1.csv").write_text("delivery,line,sku,price\n1,1,a,1.50\n1,2,b,2.50\n")
        query = f"SELECT record.delivery, record.line, record.sku, record.price FROM {LINES}"
        self.files.write("silver/lines.sql", HEADER + query)
        worth = "SELECT delivery, sum(price) AS worth FROM silver.lines GROUP BY delivery"
        self.files.write("gold/deliveries.sql", worth)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def deliveries(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deliveries]:
    """After the browser: without one, nothing needs to be started."""
    made = Deliveries(tmp_path_factory.mktemp("web"))
    made.tidemark("stream", "run", "default/drops")
    assert [run["status"] for run in made.tidemark("model", "run")] == ["published", "published"]
    with made.ui():
        yield made


@pytest.fixture
def page(chromium: Browser, deliveries: Deliveries) -> Iterator[Page]:
    context = chromium.new_context(base_url=deliveries.url, viewport={"width": 1800, "height": 1600})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    yield page
    context.close()


def test_a_column_is_shown_with_the_columns_that_it_comes_from(page: Page) -> None:
    page.goto("/assets/gold/deliveries")
    column = page.locator("tr").filter(has=page.get_by_text("worth", exact=True)).first
    expect(column).to_contain_text("from silver.lines.price", timeout=PATIENCE)
    expect(column).to_contain_text("decimal(22,2)")
    told = page.locator("tr").filter(has=page.get_by_text("column lineage", exact=True)).first
    expect(told).to_contain_text("silver.lines.price", timeout=PATIENCE)
    page.goto("/assets/silver/lines")
    below = page.locator("tr").filter(has=page.get_by_text("price", exact=True)).first
    expect(below).to_contain_text(f"from {LINES}.record.price", timeout=PATIENCE)


def test_column_lineage_is_there_for_whoever_draws_it(deliveries: Deliveries) -> None:
    lineage = "... on TableColumnLineageMetadataEntry { lineage { columnName columnDeps { assetKey { path } columnName } } }"
    newest = f"assetMaterializations(limit: 1) {{ metadataEntries {{ label {lineage} }} }}"
    query = f'{{ assetOrError(assetKey: {{path: ["silver", "lines"]}}) {{ ... on Asset {{ {newest} }} }} }}'
    (told,) = deliveries.ask(query)["assetOrError"]["assetMaterializations"]
    (entry,) = [each for each in told["metadataEntries"] if each["label"] == "dagster/column_lineage"]
    assert {"assetKey": {"path": ["drops", "drops_lines", "bronze"]}, "columnName": "record.sku"} in [
        dep for column in entry["lineage"] for dep in column["columnDeps"] if column["columnName"] == "sku"
    ]


def test_a_model_stands_between_bronze_and_what_reads_it(page: Page) -> None:
    page.goto("/assets/silver/lines?view=lineage")
    for asset in ("bronze", "lines", "deliveries"):
        node = page.locator("foreignObject").filter(has=page.get_by_text(asset, exact=True)).first
        expect(node).to_be_visible(timeout=PATIENCE)


def test_the_checks_of_a_model_are_shown_passed(page: Page) -> None:
    page.goto("/assets/silver/lines?view=checks")
    expect(page.get_by_text("unique__delivery__line", exact=True).first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("Succeeded", exact=True).first).to_be_visible(timeout=PATIENCE)
