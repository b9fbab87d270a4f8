"""Files put into Bronze with the bounds that pyiceberg leaves out: those of numbers inside of records."""

from collections.abc import Iterable, Mapping
from functools import partial

import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.types import IntegerType, LongType, NestedField
from pyiceberg.utils.concurrent import ExecutorFactory


def append_files(table: Table, files: Iterable[str], fields: Iterable[str], summary: Mapping[str, str], branch: str) -> None:
    """Adds files that tasks wrote to a branch, in one commit. `fields` of records are numbers that runs look for.

    Like pyiceberg's `add_files`, but for the bounds, and for its check whether the table has a file already, which reads
    every manifest. No file can be there already: the task that wrote it gave it a random name, and a run that takes over
    from a stopped one takes none of its files that was published (`resumable_plan`, `not_yet_held`).
    """
    bounded = partial(bounded_file, table, numbers_of(table, fields))
    with table.transaction() as transaction:
        if table.name_mapping() is None:
            mapping = table.schema().name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        with transaction.update_snapshot(dict(summary), branch).fast_append() as append:
            for data_file in ExecutorFactory.get_or_create().map(bounded, files):
                append.append_data_file(data_file)


def numbers_of(table: Table, fields: Iterable[str]) -> dict[str, NestedField]:
    """Those of the fields that are whole numbers, by their path in a file."""
    record = table.schema().find_field("record").field_type if "record" in table.schema().column_names else None
    found = {each.name: each for each in getattr(record, "fields", ())}
    return {
        f"record.{name}": found[name]
        for name in fields
        if name in found and isinstance(found[name].field_type, IntegerType | LongType)
    }


def bounded_file(table: Table, numbers: Mapping[str, NestedField], path: str) -> DataFile:
    data_file = parquet_file_to_data_file(table.io, table.metadata, path)
    if not numbers:
        return data_file
    with table.io.new_input(path).open() as file:
        metadata = pq.read_metadata(file)
    for name, field in numbers.items():
        ends = ends_of(metadata, name)
        if ends is not None:
            data_file.lower_bounds[field.field_id] = to_bytes(field.field_type, ends[0])  # type: ignore[arg-type]
            data_file.upper_bounds[field.field_id] = to_bytes(field.field_type, ends[1])  # type: ignore[arg-type]
    return data_file


def ends_of(metadata: pq.FileMetaData, name: str) -> tuple[int, int] | None:
    """The least and the greatest value of a column in a file; None where the file does not say."""
    ends: list[int] = []
    for group in range(metadata.num_row_groups):
        columns = metadata.row_group(group)
        found = [each for each in map(columns.column, range(columns.num_columns)) if each.path_in_schema == name]
        said = found[0].statistics if found else None
        if said is None or not (said.has_min_max or said.num_values == 0):
            return None
        if said.has_min_max:
            ends += [said.min, said.max]
    return (min(ends), max(ends)) if ends else None
