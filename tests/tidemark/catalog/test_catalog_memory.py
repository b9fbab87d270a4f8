"""What the driver holds of a listing: bytes a table, not objects."""

import gc
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tidemark.catalog import labelled
from tidemark.catalog.entities import EntityWriter
from tidemark.catalog.labelled import Labelling
from tidemark.catalog.labels import Before
from tidemark.catalog.packs import DatabaseFacts, Listing, PackedTables, Partitioning, SchemaFacts, TableFacts, listing
from tidemark.catalog.published import SIGNALS
from tidemark.catalog.scope import Scope
from tidemark.catalog.units import FIELDS, UnitLabels
from tidemark.runs import Mode

pytestmark = pytest.mark.fast

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WRITER = EntityWriter("app", "1")


def tables(count: int) -> Iterator[TableFacts]:
    for n in range(count):
        yield TableFacts("db", "public", f"table_{n:08d}", "table", str(n), f"{n:032x}", None, None, 20)


def listing_of(some: PackedTables) -> Listing:
    schema = SchemaFacts("db", "public", None, listed=True, why_not=None)
    return Listing("here", NOON, (DatabaseFacts("db", None),), (schema,), some)


def held(count: int) -> tuple[int, int]:
    """The peaks of Python's objects and of Arrow's memory while so many tables are listed and as many are gone."""
    gone = pa.table({
        "kind": ["table"] * count, "qualified_name": [f"default/app/1/db/old/t{n}" for n in range(count)],
        "object_id": [str(n) for n in range(count)], "digest": ["d"] * count,
    })  # fmt: skip
    gc.collect()
    arrow = [pa.total_allocated_bytes()]
    tracemalloc.start()
    labelling = Labelling(listing_of(PackedTables(tables(count))), WRITER, Scope(), Before(Scope()), Mode.INCREMENTAL, "run")

    def keys_of(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for batch in batches:
            arrow.append(pa.total_allocated_bytes())
            yield batch.select(FIELDS)

    units = UnitLabels.of(keys_of(labelling.units(gone)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert units.counts()["CREATED"] == units.counts()["REMOVED"] == count
    return peak, max(arrow) - arrow[0]


def test_what_is_held_of_a_listing_grows_by_some_bytes_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelled, "UNITS_AT_ONCE", 500)
    monkeypatch.setattr(listing, "AT_ONCE", 500)
    held(500)  # what is made once, by whoever is first
    (small, arrow_small), (large, arrow_large) = held(2_000), held(8_000)
    assert (large - small) / 6_000 < 100  # keys and labels of two units; objects would take thousands
    assert (arrow_large - arrow_small) / 6_000 < 600


def test_packed_tables_are_what_was_packed() -> None:
    odd = (
        TableFacts("db", "s", "t", "view", "1", "d", "a comment", "SELECT 1", 2, NOON, NOON),
        TableFacts("db", "s", "p", "partitioned table", "2", "e", "", "", 0, partitioning=Partitioning("RANGE", "day", 3)),
        TableFacts("db", "s", "p1", "table", "3", "f", None, None, 1, partition_of=("db", "s", "p"), partition_bound="b"),
        TableFacts("db", "s", "h", "table", "4", "g", None, None, 1, inherits=(("db", "s", "a"), ("db", "x", "b"))),
    )
    packed = PackedTables(odd)
    assert tuple(packed) == odd
    assert (len(packed), packed[1], packed[-1], packed[1:3]) == (4, odd[1], odd[3], odd[1:3])
    assert packed == PackedTables(iter(odd))
    assert packed != PackedTables(odd[:3])
    with pytest.raises(IndexError):
        packed[4]
    assert tuple(PackedTables()) == ()


def test_a_listing_of_no_table_is_labelled() -> None:
    labelling = Labelling(listing_of(PackedTables()), WRITER, Scope(), Before(Scope()), Mode.FULL, "run")
    nothing = pa.table({name: pa.array([], pa.string()) for name in SIGNALS})
    assert [batch["kind"].to_pylist() for batch in labelling.units(nothing)] == [["database"], ["schema"]]
