"""Rows of a query brought into the shape of a table: by name and path, with every cast known to be exact or checked."""

from collections.abc import Iterator, Mapping

from pyiceberg.types import NestedField
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as sp

from spark_code.models.types import spark_type

# Spark's own format of moments in JSON ends at milliseconds.
MOMENTS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def aligned(rows: DataFrame, target: tuple[NestedField, ...], stored_as: Mapping[str, str]) -> DataFrame:
    """The columns of the table, in its order. What the query lacks is NULL, what the table lacks is left out.

    `stored_as` names the query's column for a column of the table that is about to be renamed.
    """
    return rows.select(*(column.alias(name) for name, column in aligned_columns(rows, target, stored_as)))


def aligned_columns(
    rows: DataFrame, target: tuple[NestedField, ...], stored_as: Mapping[str, str]
) -> Iterator[tuple[str, Column]]:
    given = {field.name.lower(): field for field in rows.schema.fields}
    for field in target:
        wanted = spark_type(field.field_type)
        source = given.get(stored_as.get(field.name, field.name).lower())
        yield field.name, f.lit(None).cast(wanted) if source is None else shaped(own(source.name), source.dataType, wanted)


def has_source(rows: DataFrame, field: NestedField, stored_as: Mapping[str, str]) -> bool:
    return stored_as.get(field.name, field.name).lower() in {each.lower() for each in rows.columns}


def own(name: str) -> Column:
    """A column by its name, whatever signs are in it."""
    return f.col("`" + name.replace("`", "``") + "`")


def shaped(value: Column, given: sp.DataType, wanted: sp.DataType) -> Column:
    """A value in the wanted type; fields of structs by name, at every depth."""
    if same_shape(given, wanted):
        return value
    if isinstance(given, sp.StructType) and isinstance(wanted, sp.StructType):
        names = {field.name.lower(): field for field in given.fields}
        fields = [_leaf(value, names.get(field.name.lower()), field).alias(field.name) for field in wanted.fields]
        return f.when(value.isNotNull(), f.struct(*fields))
    if isinstance(given, sp.ArrayType) and isinstance(wanted, sp.ArrayType):
        inner = given.elementType, wanted.elementType
        return f.transform(value, lambda element: shaped(element, *inner))
    if isinstance(given, sp.MapType) and isinstance(wanted, sp.MapType):
        values = given.valueType, wanted.valueType
        return f.transform_values(value, lambda _, item: shaped(item, *values))
    return value.cast(wanted)


def misfit(value: Column, given: sp.DataType, wanted: sp.DataType) -> Column:
    """Whether a value is not the same any more once it has been stored in the wanted type."""
    if same_shape(given, wanted):
        return f.lit(False)
    if isinstance(given, sp.StructType) and isinstance(wanted, sp.StructType):
        names = {field.name.lower(): field for field in given.fields}
        bad = f.lit(False)
        for field in wanted.fields:
            source = names.get(field.name.lower())
            if source is not None:
                bad = bad | misfit(value.getField(source.name), source.dataType, field.dataType)
        return value.isNotNull() & bad
    if isinstance(given, sp.ArrayType) and isinstance(wanted, sp.ArrayType):
        inner = given.elementType, wanted.elementType
        return f.coalesce(f.exists(value, lambda element: misfit(element, *inner)), f.lit(False))
    if isinstance(given, sp.MapType) and isinstance(wanted, sp.MapType):
        values = given.valueType, wanted.valueType
        return f.coalesce(f.exists(f.map_values(value), lambda item: misfit(item, *values)), f.lit(False))
    return value.isNotNull() & ~value.try_cast(wanted).try_cast(given).eqNullSafe(value)


def same_shape(one: sp.DataType, other: sp.DataType) -> bool:
    """Equal types; whether a part may be NULL does not count."""
    if isinstance(one, sp.StructType) and isinstance(other, sp.StructType):
        names = [[field.name for field in each.fields] for each in (one, other)]
        pairs = zip(one.fields, other.fields, strict=False)
        return names[0] == names[1] and all(same_shape(a.dataType, b.dataType) for a, b in pairs)
    if isinstance(one, sp.ArrayType) and isinstance(other, sp.ArrayType):
        return same_shape(one.elementType, other.elementType)
    if isinstance(one, sp.MapType) and isinstance(other, sp.MapType):
        return same_shape(one.keyType, other.keyType) and same_shape(one.valueType, other.valueType)
    return one == other


def comparable(value: Column, of: sp.DataType) -> Column:
    """A value as something that can be tested for equality: maps cannot."""
    return exact_json(value) if holds_map(of) else value


def exact_json(*values: Column) -> Column:
    """Values as one text, which differs where they do."""
    return f.to_json(f.struct(*values), MOMENTS)


def holds_map(of: sp.DataType) -> bool:
    if isinstance(of, sp.StructType):
        return any(holds_map(field.dataType) for field in of.fields)
    return isinstance(of, sp.MapType) or (isinstance(of, sp.ArrayType) and holds_map(of.elementType))


def _leaf(struct: Column, source: sp.StructField | None, wanted: sp.StructField) -> Column:
    if source is None:
        return f.lit(None).cast(wanted.dataType)
    return shaped(struct.getField(source.name), source.dataType, wanted.dataType)
