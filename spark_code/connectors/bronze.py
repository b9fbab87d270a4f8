"""A Bronze table in the lake: made and widened by pyiceberg, filled with files that tasks wrote, published by Spark."""

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
from pyiceberg.table import Table

from spark_code.connectors.bounds import append_files
from spark_code.lake import Lake
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import LakeError, SchemaRefused
from tidemark.faults import fault_point
from tidemark.lake import CATALOG, branch_of

# The columns of hashes have no bounds, and should not: no reason to report it for every file.
logging.getLogger("pyiceberg.io.pyarrow").addFilter(lambda record: "statistics missing" not in str(record.msg))

PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
# Paths of files begin alike: cut off after some letters, as bounds are, those of all files would be the same.
BOUNDS = {"write.metadata.metrics.column.cursor": "full"}

# The property that says which views a table has.
VIEWS = "tidemark.views"

# Iceberg's words for the types that Arrow writes in more than one way.
WIDER = {pa.int8(): pa.int32(), pa.int16(): pa.int32(), pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}

# A scalar subquery on few files: a truncation is rare, and files say which operations they hold.
LATEST = """
SELECT stream, emitted_at, cursor, key, record, content_hash, run_id FROM (
    SELECT *, row_number() OVER (PARTITION BY key_hash ORDER BY emitted_at DESC, arrival DESC) AS place FROM {table})
WHERE place = 1 AND operation = 'upsert' AND coalesce(struct(emitted_at, arrival) > (
    SELECT max(struct(emitted_at, arrival)) FROM {table} WHERE operation = 'truncate'), true)"""

CHANGES = "SELECT * FROM {table}"


@dataclass(frozen=True)
class BronzeTable:
    """The table of one stream, or its quarantine."""

    lake: Lake
    name: str

    @property
    def table(self) -> Table | None:
        return self.lake.reader.table(self.name)

    def prepared(self, schema: pa.Schema) -> Table:
        """The table, made or widened so that it holds rows of this schema. Nothing it has is ever taken away."""
        found, bounds = self.table, BOUNDS if "cursor" in schema.names else {}
        if found is None:
            self.lake.create_namespace(self.name.rpartition(".")[0])
            location = "/".join([self.lake.reader.settings.warehouse.rstrip("/"), *self.name.split(".")])
            given = PROPERTIES | bounds
            return self.lake.reader.catalog.create_table(self.name, schema, location=location, properties=given)
        with found.update_schema() as update:
            update.union_by_name(schema)
        if bounds.keys() - found.properties.keys():
            with self.lake.reader.existing(self.name).transaction() as transaction:
                transaction.set_properties(bounds)
        return self.lake.reader.catalog.load_table(self.name)

    def views(self, latest: str, changes: str, *, again: bool) -> None:
        """Makes the views if they are not there, or have other fields or words than they should; or `again`."""
        table = self.table
        assert table is not None, "prepared before"
        version = sha256(f"{LATEST} {CHANGES} {table.metadata.current_schema_id}".encode()).hexdigest()
        if not again and table.properties.get(VIEWS) == version:
            return
        for name, query in ((latest, LATEST), (changes, CHANGES)):
            self.lake.spark.sql(f"CREATE OR REPLACE VIEW {CATALOG}.{name} AS {query.format(table=f'{CATALOG}.{self.name}')}")
        if table.properties.get(VIEWS) != version:
            with table.transaction() as transaction:
                transaction.set_properties({VIEWS: version})

    def stage(self, run_id: str, files: Sequence[str], summary: Mapping[str, str], fields: Sequence[str] = ()) -> int:
        """Adds files to the run's branch, and gives the snapshot that has them. `fields` of records get bounds."""
        self.lake.stage(self.name, run_id)
        table = self.table
        assert table is not None, "prepared before"
        fault_point("bronze.before_add_files")
        append_files(table, files, fields, summary, branch_of(run_id))
        fault_point("bronze.after_add_files")
        staged = self.lake.reader.staged(self.name, run_id)
        if staged is None:
            raise LakeError(f"{self.name}: the branch of run {run_id} is gone. Run again.")
        return staged.snapshot_id


def record_schema(
    stream: StreamSpec, discovered: pa.Schema, existing: Table | None, *, loose: bool = False
) -> dict[str, pa.Field]:
    """Each field of the source with the name and type it lands under. A type that changed gets a column of its own.

    A flag of deletions may be missing from `loose` fields, which are those of a batch of files.
    """
    needed = {*stream.key, *stream.cursor_fields}
    flag = {stream.delete_flag} if stream.delete_flag and not loose else set()
    lacking = sorted((needed | flag) - set(discovered.names))
    if lacking:
        raise SchemaRefused(
            f"{stream.id}: the source has no field {', '.join(lacking)}, which the manifest names in key, cursor or "
            f"delete_flag. It has: {', '.join(discovered.names)}."
        )
    known = existing_types(existing)
    return {field.name: landing_field(stream, field, known, needed) for field in discovered}


def landing_field(stream: StreamSpec, field: pa.Field, known: Mapping[str, pa.DataType], needed: Set[str]) -> pa.Field:
    before, now = known.get(field.name), normal(field.type)
    own = pa.field(f"{field.name}__{plain_type(now)}", now)
    both = now if before is None else merged(before, now)
    if both is not None:
        return pa.field(field.name, both)
    if known.get(own.name) == now:
        return own  # this change was landed before
    tied = field.name in needed
    if tied or stream.on_type_change == "reject":
        why = "it is part of the key or the cursor" if tied else "the manifest rejects that"
        raise SchemaRefused(
            f"{stream.id}: the field '{field.name}' changed its type from {before} to {now}, and {why}. Nothing was read. "
            + ("Land it as a stream of another id." if tied else "`on_type_change: new_column` keeps both.")
        )
    return own


def existing_types(table: Table | None) -> dict[str, pa.DataType]:
    if table is None:
        return {}
    record = table.schema().as_arrow().field("record").type
    return {field.name: normal(field.type) for field in record}


def normal(type_: pa.DataType) -> pa.DataType:
    """One way to write what Arrow writes in several, at every depth."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, normal(each.type)) for each in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(pa.field("element", normal(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(normal(type_.key_type), normal(type_.item_type))
    return WIDER.get(type_, type_)


def merged(before: pa.DataType, now: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both, if Iceberg can widen a column from the one to it. None if there is none."""
    if before == now:
        return now
    for narrow, wide in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
        if {before, now} == {narrow, wide}:
            return wide
    if pa.types.is_decimal(before) and pa.types.is_decimal(now):
        return max(before, now, key=lambda each: each.precision) if before.scale == now.scale else None
    if pa.types.is_list(before) and pa.types.is_list(now):
        inner = merged(before.value_type, now.value_type)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if pa.types.is_struct(before) and pa.types.is_struct(now):
        fields = {each.name: each.type for each in before}
        for each in now:
            both = merged(fields.get(each.name, each.type), each.type)
            if both is None:
                return None
            fields[each.name] = both
        return pa.struct(list(fields.items()))
    return None


def plain_type(type_: pa.DataType) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in str(type_)).strip("_")
