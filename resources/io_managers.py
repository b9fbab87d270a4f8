"""Where the assets of a catalogue run are kept: extracted rows, staged state, JSON diff. They only store and load."""

from typing import Any

from dagster import (
    ConfigurableIOManager,
    InputContext,
    MetadataValue,
    OutputContext,
    ResourceDependency,
    TableColumn,
    TableSchema,
)

from resources.catalog import CatalogResource
from spark_code.catalog.diff import IncrementalDiff
from spark_code.catalog.run import CatalogRun
from spark_code.catalog.state import StagedState
from spark_code.catalog.subject import CatalogSubject
from spark_code.parts import Parts
from tidemark.catalog.rows import STATE_SCHEMA

PREVIEW_ROWS = 8


def row_schema() -> TableSchema:
    return TableSchema([TableColumn(field.name, str(field.type)) for field in STATE_SCHEMA])


def preview(rows: Parts) -> MetadataValue[Any]:
    """The first rows as a table that a person can read."""
    lines = ["| name | label | digest |", "|---|---|---|"]
    for row in rows.head(PREVIEW_ROWS, ["qualified_name", "label", "digest"]).to_pylist():
        name = row["qualified_name"].replace("|", "\\|")
        lines.append(f"| {name} | {row['label']} | {row['digest'] or ''} |")
    return MetadataValue.md("\n".join(lines))


class CatalogIOManager(ConfigurableIOManager):
    """What the I/O managers of the catalogue share: the subject of the partition, and the run that asks."""

    catalog: ResourceDependency[CatalogResource]

    def subject(self, context: InputContext | OutputContext) -> CatalogSubject:
        return self.catalog.subject(context.partition_key)

    def run(self, context: InputContext) -> CatalogRun:
        step = context.step_context
        return self.catalog.run_of(step.run_id, context.partition_key, step.instance)


class ExtractsIOManager(CatalogIOManager):
    """Extracted rows as Parquet objects under `runs/{run_id}/extracted/`."""

    def handle_output(self, context: OutputContext, obj: Parts) -> None:
        subject, asset = self.subject(context), context.asset_key.path[-1]
        subject.save_extract(context.run_id, asset, obj)
        shown = {} if asset == "columns" else {"preview": preview(obj)}
        context.add_output_metadata(
            {
                "dagster/uri": subject.store.uri(f"{subject.layout.extracted(context.run_id)}/{asset}"),
                "dagster/column_schema": row_schema(),
                "dagster/row_count": obj.rows,
                **shown,
            }
        )

    def load_input(self, context: InputContext) -> Parts:
        return self.run(context).extract(context.asset_key.path[-1])


class StagedStateIOManager(CatalogIOManager):
    """A handle of the state that waits on the run's branch."""

    def handle_output(self, context: OutputContext, obj: StagedState) -> None:
        subject = self.subject(context)
        subject.save_staged(obj)
        context.add_output_metadata(
            {
                "dagster/table_name": f"lake.{obj.table}",
                "dagster/uri": f"{subject.lake.reader.settings.warehouse}/{obj.table.replace('.', '/')}",
                "dagster/row_count": subject.lake.reader.rows(obj.table, obj.current),
                "dagster/column_schema": row_schema(),
                "snapshot": str(obj.current),
                "staged": obj.snapshot is not None,
            }
        )

    def load_input(self, context: InputContext) -> StagedState:
        return self.run(context).staged


class JsonDiffIOManager(CatalogIOManager):
    """The diff of a run as JSON under `runs/{run_id}/incremental-diff/`, on S3 or locally."""

    def handle_output(self, context: OutputContext, obj: IncrementalDiff) -> None:
        subject = self.subject(context)
        counts = subject.diff_writer(context.run_id).write(obj)
        deleted = sum(count for name, count in counts.items() if name.startswith("deleted"))
        context.add_output_metadata(
            {
                "dagster/uri": subject.store.uri(subject.layout.diff(context.run_id)),
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
