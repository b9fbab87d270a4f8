"""Pages with fields that the manifest fixes, or that nobody described."""

from collections.abc import Iterable, Iterator
from datetime import datetime

import pyarrow as pa
import pytest

from tidemark.connectors.contract import OPERATION, CheckpointConnector, Connector, Slice, StreamDescription, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.fitting import declared_schema, fitted, unknown_fields
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import SchemaRefused

pytestmark = pytest.mark.fast

FIXED = StreamSpec(id="a", key=["id"], schema_strategy="fixed", schema={"id": "bigint", "amount": "decimal(9,2)"})
DISCOVERED = pa.schema([("id", pa.string()), ("amount", pa.string()), ("note", pa.string()), ("_file", pa.string())])


class Table(Connector):
    kind = "table of a test"

    def streams(self) -> list[StreamDescription]:
        return []

    def discover(self, stream: StreamSpec) -> pa.Schema:
        return DISCOVERED

    def now(self, stream: StreamSpec) -> Cursor | None:
        return None

    def count(self, stream: StreamSpec, window: Window) -> int | None:
        return None

    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        return []

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        yield from ()

    def close(self) -> None:
        """Nothing is open."""


class Log(Table, CheckpointConnector):
    kind = "log of a test"

    def pending(self, stream: StreamSpec, checkpoint: str | None, parallel: int) -> list[Slice]:
        return []

    def advanced(self, stream: StreamSpec, checkpoint: str | None, slices: Iterable[Slice]) -> str:
        return ""

    def fields(self, stream: StreamSpec, slices: Iterable[Slice]) -> pa.Schema:
        return DISCOVERED


def test_what_a_source_describes_lands_unless_the_manifest_fixes_it() -> None:
    free = StreamSpec(id="a", key=["id"])
    assert declared_schema(Table({}, {}), free, DISCOVERED) == DISCOVERED
    assert declared_schema(Table({}, {}), FIXED, DISCOVERED) == pa.schema(
        [("id", pa.int64()), ("amount", pa.decimal128(9, 2))]
    )


def test_what_a_log_adds_to_its_records_lands_beside_fixed_fields() -> None:
    assert declared_schema(Log({}, {}), FIXED, DISCOVERED).names == ["id", "amount", "_file"]


def test_a_fixed_field_that_a_table_lacks_is_refused_and_one_that_messages_lack_is_null() -> None:
    fewer = pa.schema([("id", pa.string())])
    with pytest.raises(SchemaRefused, match=r"the manifest's schema has amount, and the source has not. It has: id"):
        declared_schema(Table({}, {}), FIXED, fewer)
    fixed = declared_schema(Log({}, {}), FIXED, fewer)
    page, _ = fitted(pa.record_batch({"id": ["1"]}), fixed)
    assert page.to_pylist() == [{"id": 1, "amount": None}]


def test_records_with_a_value_that_does_not_fit_are_put_aside_as_they_were() -> None:
    page = pa.record_batch({"id": ["1", "x", "3"], "amount": ["1.50", "2", None], "note": ["a", "b", "c"]})
    good, misfits = fitted(page, declared_schema(Table({}, {}), FIXED, DISCOVERED))
    assert [(row["id"], str(row["amount"])) for row in good.to_pylist()] == [(1, "1.50"), (3, "None")]
    assert misfits is not None
    assert misfits.to_pylist() == [{"id": "x", "amount": "2", "note": "b"}]


def test_what_happened_to_a_record_stays_with_it() -> None:
    page = pa.record_batch({"id": ["1", "x", "3"], OPERATION: ["upsert", "upsert", "delete"]})
    good, _ = fitted(page, pa.schema([("id", pa.int64())]))
    assert good.to_pylist() == [{"id": 1, OPERATION: "upsert"}, {"id": 3, OPERATION: "delete"}]


def test_a_field_that_nobody_described_is_told_and_the_operation_is_none() -> None:
    page = pa.record_batch({"id": ["1"], "extra": [datetime(2026, 1, 1)], OPERATION: ["upsert"]})  # noqa: DTZ001
    assert unknown_fields(page, pa.schema([("id", pa.string())])).names == ["extra"]
