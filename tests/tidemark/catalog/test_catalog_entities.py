"""Entities as programs read them."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.catalog.entities import EntityWriter, entity
from tidemark.catalog.packs import ColumnFacts, Partitioning, TableFacts, TableRef

pytestmark = pytest.mark.fast

PLAIN = TableFacts("db", "s", "t", "table", "1", "d", None, None, 2)


def written(facts: TableFacts) -> tuple[str, dict[str, Any]]:
    """Type and attributes of a table's entity."""
    read = orjson.loads(EntityWriter("postgresql", "7").table(facts))
    return read["typeName"], read["attributes"]


def test_a_partitioned_table_is_a_table_that_says_how_it_is_partitioned() -> None:
    kind, attributes = written(replace(PLAIN, kind="partitioned table", partitioning=Partitioning("RANGE", "day", 3)))
    assert kind == "Table"
    assert attributes["isPartitioned"] is True
    assert [attributes[f"partition{fact}"] for fact in ("Strategy", "Keys", "Count")] == ["RANGE", "day", 3]
    assert "parentTableQualifiedName" not in attributes


@pytest.mark.parametrize("kind", ["table", "foreign table", "partitioned table"])
def test_a_partition_is_a_table_partition_that_names_its_table_and_its_bound(kind: str) -> None:
    facts = replace(PLAIN, kind=kind, partition_of=("db", "s/1", "whole"), partition_bound="DEFAULT")
    type_name, attributes = written(facts)
    assert type_name == "TablePartition"
    assert attributes["parentTableName"] == "whole"
    assert attributes["parentTableQualifiedName"] == "default/postgresql/7/db/s%2F1/whole"
    assert attributes["constraint"] == "DEFAULT"
    assert attributes["subType"] == kind


def test_a_table_that_inherits_names_its_parents_in_their_order() -> None:
    kind, attributes = written(replace(PLAIN, inherits=(("db", "s", "b"), ("db", "s", "a"))))
    assert kind == "Table"
    assert attributes["inheritsFrom"] == ["default/postgresql/7/db/s/b", "default/postgresql/7/db/s/a"]


def test_a_plain_table_says_nothing_of_partitions() -> None:
    kind, attributes = written(PLAIN)
    assert kind == "Table"
    assert not [name for name in attributes if "artition" in name or "parent" in name or "inherit" in name]


texts = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.none() | st.integers(-(1 << 31), 1 << 31)
targets = st.lists(st.tuples(texts, texts, texts, texts), max_size=2).map(tuple)
column_facts = st.builds(
    ColumnFacts, texts, st.integers(1, 9), texts, numbers, numbers, numbers, st.booleans(), st.none() | texts,
    st.none() | texts, st.none() | st.integers(1, 9), targets,
)  # fmt: skip


@given(st.tuples(texts, texts, texts), st.lists(column_facts, max_size=3))
def test_columns_are_the_same_bytes_as_if_each_were_written_by_itself(of: tuple[str, str, str], facts: Any) -> None:
    write, table = EntityWriter("postgresql", "7"), TableRef(*of)
    place = {
        "connectorName": "postgresql",
        "connectionQualifiedName": write.name(),
        "databaseName": of[0],
        "databaseQualifiedName": write.name(of[0]),
        "schemaName": of[1],
        "schemaQualifiedName": write.name(*of[:2]),
        "tableName": of[2],
        "tableQualifiedName": write.name(*of),
    }
    for each, (name, text) in zip(facts, write.columns(table, facts), strict=True):
        own = {
            "order": each.ordinal, "dataType": each.data_type, "maxLength": each.length, "precision": each.precision,
            "numericScale": each.scale, "isNullable": each.nullable, "defaultValue": each.default,
            "description": each.comment, "isPrimary": each.primary_key is not None,
            "primaryKeyPosition": each.primary_key, "isForeign": bool(each.foreign_keys),
            "foreignKeyTo": [write.name(*target) for target in each.foreign_keys] or None,
        }  # fmt: skip
        assert name == write.name(*of, each.name)
        assert text == entity("Column", {"qualifiedName": name, "name": each.name, **place, **own})
