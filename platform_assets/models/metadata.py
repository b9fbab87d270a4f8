"""What Dagster shows of a model: its columns, where they come from, what is planned and what was done."""

from collections.abc import Mapping
from typing import Any

from dagster import (
    AssetKey,
    MetadataValue,
    TableColumn,
    TableColumnDep,
    TableColumnLineage,
    TableRecord,
    TableSchema,
)

from platform_assets.keys import bronze_key, model_key
from tidemark.models.graph import Project
from tidemark.models.lineage import STAR, Lineage, Source
from tidemark.models.project import Model


def key_of(project: Project, table: str) -> AssetKey:
    """The asset that a table belongs to; one that others write is called by its name."""
    bronze = project.bronze.get(table)
    return bronze_key(bronze.place.connector, bronze.place.stream) if bronze else model_key(table)


def definition_metadata(model: Model) -> dict[str, Any]:
    """What the files say of a model."""
    said = model.metadata
    shown: dict[str, Any] = {
        "dagster/table_name": f"lake.{model.name}",
        "materialization": said.materialization,
        "query": MetadataValue.md(f"```sql\n{model.sql}\n```"),
    }
    if said.incremental is not None:
        shown["strategy"] = said.incremental.strategy
        shown["on_schema_change"] = said.incremental.on_schema_change
    if said.partitions is not None:
        shown["partitions"] = (
            f"by {said.partitions.by} of {said.incremental.options.filter_column if said.incremental else ''}"
        )
    return shown


def lineage_metadata(project: Project, lineage: Lineage) -> dict[str, Any]:
    """`dagster/column_lineage`, and the same as a table: the open-source web UI draws no picture of the first."""
    return {
        "dagster/column_lineage": TableColumnLineage(
            {
                column: [TableColumnDep(key_of(project, source.table), source.column) for source in sources]
                for column, sources in lineage.columns.items()
                if column != STAR and sources
            }
        ),
        "column lineage": MetadataValue.table(
            [
                TableRecord({"column": column, "comes from": shown(sources), "known": column not in lineage.unknown})
                for column, sources in lineage.columns.items()
            ],
            TableSchema([TableColumn("column"), TableColumn("comes from"), TableColumn("known", "bool")]),
        ),
    }


def column_schema(types: Mapping[str, str], lineage: Lineage) -> TableSchema:
    """The columns of a table, each with a word about where it comes from."""
    sources = {name.lower(): of for name, of in lineage.columns.items()}
    return TableSchema(
        [TableColumn(name, type_, description=described(sources.get(name.lower(), ()))) for name, type_ in types.items()]
    )


def described(sources: tuple[Source, ...]) -> str | None:
    return f"from {shown(sources)}" if sources else None


def shown(sources: tuple[Source, ...]) -> str:
    return ", ".join(f"{source.table}.{source.column}" for source in sources)
