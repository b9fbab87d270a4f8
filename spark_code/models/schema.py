"""A query's columns next to its table's, and what the model's policy makes of the difference."""

from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import NestedField

from spark_code.models.adapter import ModelAdapter, numbered
from spark_code.models.incoming import refuse_inexact
from tidemark.errors import ConfigError
from tidemark.models.compare import SchemaDiff, compared
from tidemark.models.place import ModelPlace
from tidemark.models.policy import Decision, Guard, StepKind, decided
from tidemark.models.spec import DeleteInsertOptions, FullIncrementalRefresh, Incremental, Policy

Fields = tuple[NestedField, ...]


class SchemaComparator:
    """Reads and compares the columns of queries and tables."""

    def __init__(self, adapter: ModelAdapter) -> None:
        self._adapter = adapter

    def infer_query_schema(
        self, sql_query: str, name: str = "query", variables: Mapping[str, object] | None = None
    ) -> Fields:
        """The columns that the query has; it is read, not run."""
        return self._adapter.query_fields(self._adapter.query(sql_query, name, variables), name)

    def get_table_schema(self, table_name: str) -> Fields:
        return self._adapter.existing(table_name).schema().fields

    def compare_schemas(self, query_schema: Fields, table_schema: Fields) -> SchemaDiff:
        return compared(query_schema, table_schema)


class SchemaChangeHandler:
    """Asks the policy, and holds what it decides against what is stored. Nothing is written here."""

    def __init__(self, adapter: ModelAdapter) -> None:
        self._adapter = adapter

    def handle_schema_changes(
        self,
        table_name: str,
        query_schema: Fields,
        table_schema: Fields,
        on_schema_change: Policy,
        sql_query: str | None = None,  # noqa: ARG002  (part of the call as it is known)
        full_incremental_refresh_config: FullIncrementalRefresh | None = None,
        incremental_config: Incremental | None = None,
        renames: Mapping[str, str] | None = None,
    ) -> Decision:
        """What is to be done; SchemaChangeRefused if the policy, or a stored value, stands against it."""
        if on_schema_change == "full_incremental_refresh" and full_incremental_refresh_config is None:
            raise ConfigError(f"{table_name}: the policy full_incremental_refresh needs parameters.")
        options = incremental_config.options if incremental_config else None
        guard = Guard(
            table_name,
            options.key_columns if options else (),
            options.filter_column if options else None,
            self._partition_columns(table_name),
            renames or {},
            isinstance(options, DeleteInsertOptions),
        )
        decision = decided(compared(query_schema, table_schema), on_schema_change, guard)
        converted = decision.of("convert")
        if converted:
            wanted = {field.name.lower(): field for field in query_schema}
            stored = self._adapter.frame(ModelPlace(table_name).table)
            refuse_inexact(table_name, stored, converted, wanted)
        return decision

    def _partition_columns(self, table_name: str) -> tuple[str, ...]:
        table = self._adapter.existing(table_name)
        return tuple(str(table.schema().find_column_name(field.source_id)) for field in table.spec().fields)


# What new rows need before they can be written; the rest takes something away, and waits until they are published.
ADDING: tuple[StepKind, ...] = ("add", "widen")
CHANGING: tuple[StepKind, ...] = (*ADDING, "rename", "drop")


def schema_with(table: Table, decision: Decision, kinds: tuple[StepKind, ...]) -> Schema | None:
    """The table's schema once the steps of these kinds are done; None if there are none. Nothing is changed here."""
    if not decision.of(*kinds):
        return None
    update = Transaction(table).update_schema(allow_incompatible_changes=True)
    for step in decision.of(*kinds):
        path, of = step.change.path, step.change.query_type
        if step.kind == "add":
            update.add_column(path, of)  # type: ignore[arg-type]
        elif step.kind == "widen":
            update.update_column(path, of)
        elif step.kind == "rename":
            update.rename_column(path, str(step.to_name))
        else:
            update.delete_column(path)
    return update._apply()


def converted_fields(table: Table, decision: Decision, query: Fields) -> tuple[Fields, Schema]:
    """The columns of a shadow table in which types change, and the schema that is published from it.

    Columns that are to go are in the former still: their values stay in the files, and can be had again.
    """
    wanted = {field.name.lower(): field for field in query}
    within = [step for step in decision.steps if step.kind in ("convert", "widen") or step.change.nested]
    changed = {step.change.column.lower() for step in within}
    fields = []
    for stored in table.schema().fields:
        of = wanted[stored.name.lower()].field_type if stored.name.lower() in changed else stored.field_type
        fields.append(NestedField(stored.field_id, stored.name, of, required=False))
    added = [wanted[step.name.lower()] for step in decision.of("add") if not step.change.nested]
    shadow = tuple(numbered([*fields, *added], table))
    gone = {step.name for step in decision.of("drop") if not step.change.nested}
    renamed = decision.renames
    kept = [
        NestedField(each.field_id, renamed.get(each.name, each.name), each.field_type, required=False)
        for each in shadow
        if each.name not in gone
    ]
    return shadow, Schema(*kept)
