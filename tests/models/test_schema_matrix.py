"""Every policy on every change with every strategy: what `changes.py` says must be what happens."""

import re
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tests.catalog.harness import SparkForTests
from tests.models.changes import CELLS, CHANGES, DOCUMENT, Refused, Row, SchemaChange, document, expected_rows
from tests.models.harness import ModelLab
from tidemark.errors import SchemaChangeRefused, ValueMisfit
from tidemark.models.hashes import config_hash, sql_hash
from tidemark.models.spec import ModelMetadata
from tidemark.models.state import ModelState

# Tables are planted by pyiceberg, which knows no size of row groups.
pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")

OPTIONS: dict[str, dict[str, Any]] = {
    "append": {"filter_column": "at"},
    "merge": {"filter_column": "at", "unique_key": "id"},
    "delete_insert": {"filter_column": "at", "unique_key": "id"},
}
CHUNKS = {"parameters": [{"name": "@from", "column": "at", "start_value": 1, "end_value": "max(at)", "step": 2}]}


@pytest.mark.fast
def test_the_page_on_schema_changes_is_made_from_the_table_that_is_tested() -> None:
    assert DOCUMENT.read_text() == document(), "python -m tests.models.changes writes it anew"


@pytest.mark.fast
def test_the_table_has_as_many_cells_as_it_must() -> None:
    assert len(CELLS) >= 250
    assert len({change.key for change in CHANGES}) == len(CHANGES)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> ModelLab:
    made = ModelLab.make(tmp_path_factory.mktemp("matrix"), spark)
    for change in CHANGES:
        made.spark.sql(change.source).coalesce(1).createOrReplaceTempView(f"source_{change.key}")
    return made


@pytest.mark.parametrize(
    ("change", "policy", "strategy"), CELLS, ids=[f"{change.key}-{policy}-{strategy}" for change, policy, strategy in CELLS]
)
def test_schema_change(lab: ModelLab, change: SchemaChange, policy: str, strategy: str) -> None:
    name = f"m.{change.key}_{policy}_{strategy}"
    metadata = described(policy, strategy, change)
    plant(lab, name, change, metadata)
    before = lab.told(name)
    cell = change.cell(policy)
    if isinstance(cell, Refused):
        with pytest.raises((SchemaChangeRefused, ValueMisfit), match=cell.words) as refused:
            lab.handler.materialize(name, change.query, "incremental", metadata)
        assert name in str(refused.value)
        assert lab.told(name) == before
        return
    result = lab.handler.materialize(name, change.query, "incremental", metadata)
    table = lab.platform.lake.reader.table(name)
    assert table is not None
    columns = {field.name: plain(field.field_type) for field in table.schema().fields}
    assert columns == {"id": "int", "at": "int", **cell.columns}
    if policy not in ("full_refresh", "full_incremental_refresh", "recreate_empty"):
        assert list(columns) == ["id", "at", *cell.columns]
    assert ordered(lab.arrow(name).to_pylist()) == ordered(expected_rows(change, policy, strategy, cell))
    told = "\n".join(result.warnings)
    words = [each for each in (cell.warns, cell.replaced if strategy == "delete_insert" else "") if each]
    assert all(re.search(each, told) for each in words) if words else told == ""
    state = lab.state(name)
    assert state is not None
    empty = policy == "recreate_empty" and policy not in change.cells
    assert state.last_processed_value == (None if empty else 3)
    assert state.snapshot == lab.snapshot(name)
    assert lab.platform.lake.reader.branches(name) == {}


def described(policy: str, strategy: str, change: SchemaChange) -> ModelMetadata:
    incremental = {"strategy": strategy, strategy: OPTIONS[strategy], "on_schema_change": policy}
    given: dict[str, Any] = {"materialization": "incremental", "incremental": incremental, "renames": dict(change.renames)}
    return ModelMetadata.parse(given | {"full_incremental_refresh": CHUNKS})


def plant(lab: ModelLab, name: str, change: SchemaChange, metadata: ModelMetadata) -> None:
    """A table with two rows and the state of the run that wrote them, without Spark's help."""
    adapter, control = lab.handler.adapter, lab.states
    types = {"id": "int", "at": "int"} | {name: of for name, (of, _) in change.before.items()}
    ddl = ", ".join(f"CAST(NULL AS {of}) AS {column}" for column, of in types.items())
    fields = adapter.query_fields(adapter.spark.sql(f"SELECT {ddl}"), name)
    table = adapter.make(name, fields)
    rows = [{"id": number, "at": number, **change.stored[number]} for number in (1, 2)]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    assert metadata.incremental is not None
    state = ModelState(2, sql_hash(change.old_query), config_hash(metadata.incremental), metadata.incremental.strategy)
    control.move(name, state, expected=0, run_id=None, reason="planted")


def plain(of: IcebergType) -> str:
    """A type without the numbers of its fields."""
    if isinstance(of, StructType):
        return f"struct<{', '.join(f'{each.name}: {plain(each.field_type)}' for each in of.fields)}>"
    if isinstance(of, ListType):
        return f"list<{plain(of.element_type)}>"
    return f"map<{of.key_type}, {plain(of.value_type)}>" if isinstance(of, MapType) else str(of)


def ordered(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)
