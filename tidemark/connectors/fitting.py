"""Pages as a run takes them: with the fields that were described, or those that the manifest fixes."""

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.connectors.contract import OPERATION, CheckpointConnector, Connector
from tidemark.connectors.field_types import arrow_type
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import SchemaRefused


def declared_schema(connector: Connector, stream: StreamSpec, discovered: pa.Schema) -> pa.Schema:
    """The fields that land: those that the source described, or those that the manifest fixes.

    A fixed field may be missing from a batch of files or messages, never from a table. What a connector itself adds to its
    records, such as where they are from, stays.
    """
    if stream.fixed_schema is None:
        return discovered
    own = [each for each in discovered if each.name.startswith("_")] if isinstance(connector, CheckpointConnector) else []
    lacking = [name for name in stream.fixed_schema if name not in discovered.names]
    if lacking and not isinstance(connector, CheckpointConnector):
        raise SchemaRefused(
            f"{stream.id}: the manifest's schema has {', '.join(lacking)}, and the source has not. It has: "
            f"{', '.join(discovered.names)}."
        )
    fixed = [pa.field(name, arrow_type(type_)) for name, type_ in stream.fixed_schema.items()]
    return pa.schema([*fixed, *(each for each in own if each.name not in stream.fixed_schema)])


def unknown_fields(page: pa.RecordBatch, described: pa.Schema) -> pa.Schema:
    """Fields of a page that the source had not described."""
    return pa.schema([each for each in page.schema if each.name not in described.names and each.name != OPERATION])


def fitted(page: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """The records with just these fields, and as they were those that have a value which none of the types can hold."""
    misfits = pa.repeat(pa.scalar(False), page.num_rows)
    columns = {}
    for field in schema:
        if field.name not in page.schema.names:
            columns[field.name] = pa.nulls(page.num_rows, field.type)
            continue
        try:
            columns[field.name] = page[field.name].cast(field.type)
        except pa.ArrowException:
            columns[field.name], wrong = cast_one_by_one(page[field.name], field.type)
            misfits = pc.or_(misfits, wrong)
    if OPERATION in page.schema.names:
        columns[OPERATION] = page[OPERATION]
    fitting = pa.record_batch(columns)
    if not pc.any(misfits).as_py():
        return fitting, None
    return fitting.filter(pc.invert(misfits)), page.filter(misfits)


def cast_one_by_one(column: pa.Array, type_: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """The values that can be cast, and which cannot. Only for a column in which some cannot."""
    cast, wrong = [], []
    for position in range(len(column)):
        try:
            cast.append(column.slice(position, 1).cast(type_))
            wrong.append(False)
        except pa.ArrowException:
            cast.append(pa.nulls(1, type_))
            wrong.append(True)
    return pa.concat_arrays(cast), pa.array(wrong)
