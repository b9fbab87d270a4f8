"""What the driver of a whole run holds of a large source: bytes a table, however many there are."""

import gc
import json
import tracemalloc
from pathlib import Path

import pytest

from benchmarks.catalog_memory import SyntheticPack
from tests.catalog.harness import Catalog, SparkForTests
from tidemark.catalog import labelled
from tidemark.catalog.packs import listing

WIDTH = 4


def held(folder: Path, spark: SparkForTests, tables: int) -> int:
    """The peak of Python's objects while a schema of so many tables is read, and then read again under another name."""
    source = folder / "source.json"
    connection = {"app": SyntheticPack.app, "url": f"synthetic:///{source}", "column-chunk-size": 500, "copy-workers": 1}
    catalog = Catalog.make(folder, spark, source, connection)
    gc.collect()
    tracemalloc.start()
    for schema in ("before", "after"):
        source.write_text(json.dumps({"schema": schema, "tables": tables, "width": WIDTH}))
        record = catalog.run(allow_removals=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    labels = record.detail["labels"]
    assert (labels["CREATED"], labels["REMOVED"], record.detail["entities"]["column"]) == (tables, tables, WIDTH * tables)
    assert len(catalog.deleted_names(record.run_id)) == (1 + WIDTH) * tables
    return peak


def test_what_a_run_holds_grows_by_some_bytes_a_table(
    tmp_path: Path, spark: SparkForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labelled, "UNITS_AT_ONCE", 250)
    monkeypatch.setattr(listing, "AT_ONCE", 250)
    held(tmp_path / "first", spark, 250)  # what is made once, by whoever is first
    small, large = held(tmp_path / "small", spark, 500), held(tmp_path / "large", spark, 4_500)
    # Keys and labels, and the compressed object that is being read. Rows as objects would take thousands a table.
    assert (large - small) / 4_000 < 500
