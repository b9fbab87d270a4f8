"""Where the assets of a run are kept: extracted rows, the staged state, and the JSON diff."""

from typing import Any

import pyarrow as pa
from dagster import (
    ConfigurableIOManager,
    InputContext,
    MetadataValue,
    OutputContext,
    ResourceDependency,
    TableColumn,
    TableSchema,
)

from resources.catalog import CatalogResource, step_of
from spark_code.catalog.diff import IncrementalDiff
from spark_code.catalog.state import StagedState, StateMerge, stage_state
from spark_code.catalog.subject import CatalogSubject
from spark_code.parts import Extraction, Parts, write_part, write_parts
from tidemark.catalog.rows import STATE_SCHEMA

PREVIEW_ROWS = 8


def row_schema() -> TableSchema:
    return TableSchema([TableColumn(field.name, str(field.type)) for field in STATE_SCHEMA])


def preview(rows: pa.Table) -> MetadataValue[Any]:
    """The first rows as a table that a person can read."""
    lines = ["| name | label | digest |", "|---|---|---|"]
    for row in rows.slice(0, PREVIEW_ROWS).to_pylist():
        name = row["qualified_name"].replace("|", "\\|")
        lines.append(f"| {name} | {row['label']} | {row['digest'] or ''} |")
    return MetadataValue.md("\n".join(lines))


class CatalogIOManager(ConfigurableIOManager):
    """What the I/O managers of the catalogue share: the subject of the partition."""

    catalog: ResourceDependency[CatalogResource]

    def subject(self, context: InputContext | OutputContext) -> CatalogSubject:
        return self.catalog.subject(context.partition_key)


class ExtractsIOManager(CatalogIOManager):
    """Extracted rows as Parquet objects under `runs/{run_id}/extracted/`: from Spark tasks if large, from here if small."""

    def handle_output(self, context: OutputContext, obj: pa.Table | Extraction | None) -> None:
        subject = self.subject(context)
        prefix = f"{subject.layout.extracted(context.run_id)}/{context.asset_key.path[-1]}"
        metadata: dict[str, Any] = {"dagster/uri": subject.store.uri(prefix), "dagster/column_schema": row_schema()}
        if isinstance(obj, pa.Table):
            write_part(subject.store, f"{prefix}/part_00000_00000.parquet", obj)
            rows, metadata["preview"] = obj.num_rows, preview(obj)
        else:
            with step_of(context.run_id, "columns"):
                parts = [] if obj is None else write_parts(obj, STATE_SCHEMA, subject.store, prefix)
            rows = sum(part.rows for part in parts)
        context.add_output_metadata(metadata | {"dagster/row_count": rows})

    def load_input(self, context: InputContext) -> pa.Table | Parts:
        subject = self.subject(context)
        run_id = context.step_context.run_id
        subject.load_plan(run_id)
        parts = subject.extracted(run_id, context.asset_key.path[-1])
        return parts if context.dagster_type.typing_type is Parts else parts.read()


class StagedStateIOManager(CatalogIOManager):
    """The state in the lake: an output is staged on the run's branch, an input is a handle of that stage."""

    def handle_output(self, context: OutputContext, obj: StateMerge) -> None:
        subject = self.subject(context)
        with step_of(context.run_id, "stage"):
            staged = stage_state(subject.lake, subject.layout.table, obj)
            subject.save_staged(staged)
        context.add_output_metadata(
            {
                "dagster/table_name": f"lake.{staged.table}",
                "dagster/uri": f"{subject.lake.reader.settings.warehouse}/{staged.table.replace('.', '/')}",
                "dagster/row_count": subject.lake.reader.rows(staged.table, staged.current),
                "dagster/column_schema": row_schema(),
                "snapshot": str(staged.current),
                "staged": staged.snapshot is not None,
            }
        )

    def load_input(self, context: InputContext) -> StagedState:
        return self.subject(context).load_staged(context.step_context.run_id)


class JsonDiffIOManager(CatalogIOManager):
    """The diff of a run as JSON under `runs/{run_id}/incremental-diff/`, on S3 or locally."""

    def handle_output(self, context: OutputContext, obj: IncrementalDiff) -> None:
        subject = self.subject(context)
        with step_of(context.run_id, "diff"):
            counts = subject.diff_writer(context.run_id).write(obj)
        root = subject.layout.diff(context.run_id)
        deleted = sum(count for name, count in counts.items() if name.startswith("deleted"))
        context.add_output_metadata(
            {
                "dagster/uri": subject.store.uri(root),
                "dagster/row_count": sum(counts.values()),
                "fresh tables": counts["table"],
                "fresh columns": counts["column"],
                "deleted": deleted,
                "counts": MetadataValue.json(counts),
            }
        )

    def load_input(self, context: InputContext) -> str:
        """Where the diff lies."""
        return self.subject(context).layout.diff(context.step_context.run_id)
