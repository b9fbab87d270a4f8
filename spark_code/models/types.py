"""Spark's types as Iceberg's and the other way round: schemas are compared in the words of the table's format."""

from collections.abc import Iterator
from itertools import count

from pyiceberg import types as ice
from pyspark.sql import types as sp

SIMPLE: tuple[tuple[type[sp.DataType], ice.IcebergType], ...] = (
    (sp.BooleanType, ice.BooleanType()),
    (sp.ByteType, ice.IntegerType()),
    (sp.ShortType, ice.IntegerType()),
    (sp.IntegerType, ice.IntegerType()),
    (sp.LongType, ice.LongType()),
    (sp.FloatType, ice.FloatType()),
    (sp.DoubleType, ice.DoubleType()),
    (sp.DateType, ice.DateType()),
    (sp.TimestampNTZType, ice.TimestampType()),
    (sp.TimestampType, ice.TimestamptzType()),
    (sp.BinaryType, ice.BinaryType()),
    (sp.StringType, ice.StringType()),
    (sp.CharType, ice.StringType()),
    (sp.VarcharType, ice.StringType()),
)
BACK: dict[type[ice.IcebergType], sp.DataType] = {
    ice.BooleanType: sp.BooleanType(),
    ice.IntegerType: sp.IntegerType(),
    ice.LongType: sp.LongType(),
    ice.FloatType: sp.FloatType(),
    ice.DoubleType: sp.DoubleType(),
    ice.DateType: sp.DateType(),
    ice.TimestampType: sp.TimestampNTZType(),
    ice.TimestamptzType: sp.TimestampType(),
    ice.BinaryType: sp.BinaryType(),
    ice.StringType: sp.StringType(),
    ice.UUIDType: sp.StringType(),
}


class NoSuchType(ValueError):
    """A type that a table of the lake cannot have."""


def iceberg_fields(schema: sp.StructType, numbers: Iterator[int] | None = None) -> tuple[ice.NestedField, ...]:
    """The columns in Iceberg's words, each with a number of its own; all may be NULL."""
    counted = count(1) if numbers is None else numbers
    return tuple(_field(field.name, field.dataType, counted) for field in schema.fields)


def renumbered(field: ice.NestedField, numbers: Iterator[int]) -> ice.NestedField:
    """The same column with new numbers, its own first."""
    number = next(numbers)
    return ice.NestedField(number, field.name, _renumbered(field.field_type, numbers), required=False)


def spark_type(of: ice.IcebergType) -> sp.DataType:
    if isinstance(of, ice.DecimalType):
        return sp.DecimalType(of.precision, of.scale)
    if isinstance(of, ice.StructType):
        return sp.StructType([sp.StructField(each.name, spark_type(each.field_type)) for each in of.fields])
    if isinstance(of, ice.ListType):
        return sp.ArrayType(spark_type(of.element_type))
    if isinstance(of, ice.MapType):
        return sp.MapType(spark_type(of.key_type), spark_type(of.value_type))
    if type(of) not in BACK:
        raise NoSuchType(f"the type {of}")
    return BACK[type(of)]


def _field(name: str, of: sp.DataType, numbers: Iterator[int]) -> ice.NestedField:
    number = next(numbers)
    try:
        return ice.NestedField(number, name, _type(of, numbers), required=False)
    except NoSuchType as error:
        raise NoSuchType(f"{name}: {error}") from None


def _type(of: sp.DataType, numbers: Iterator[int]) -> ice.IcebergType:
    if isinstance(of, sp.DecimalType):
        return ice.DecimalType(of.precision, of.scale)
    if isinstance(of, sp.StructType):
        return ice.StructType(*(_field(each.name, each.dataType, numbers) for each in of.fields))
    if isinstance(of, sp.ArrayType):
        return ice.ListType(next(numbers), _type(of.elementType, numbers), element_required=False)
    if isinstance(of, sp.MapType):
        key, value = next(numbers), next(numbers)
        return ice.MapType(key, _type(of.keyType, numbers), value, _type(of.valueType, numbers), value_required=False)
    found = next((known for kind, known in SIMPLE if isinstance(of, kind)), None)
    if found is None:
        raise NoSuchType(f"a column of a table cannot be {of.simpleString()}; cast it")
    return found


def _renumbered(of: ice.IcebergType, numbers: Iterator[int]) -> ice.IcebergType:
    if isinstance(of, ice.StructType):
        return ice.StructType(*(renumbered(each, numbers) for each in of.fields))
    if isinstance(of, ice.ListType):
        return ice.ListType(next(numbers), _renumbered(of.element_type, numbers), element_required=False)
    if isinstance(of, ice.MapType):
        key, value = next(numbers), next(numbers)
        types = _renumbered(of.key_type, numbers), _renumbered(of.value_type, numbers)
        return ice.MapType(key, types[0], value, types[1], value_required=False)
    return of
