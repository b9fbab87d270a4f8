"""What a service's `$metadata` says: entity sets, their keys and fields, and how a value is written in a filter."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal
from xml.etree import ElementTree as Xml
from zoneinfo import ZoneInfo

import pyarrow as pa

from tidemark.connectors.cursors import Cursor
from tidemark.errors import SourceError

EDM = "{http://docs.oasis-open.org/odata/ns/edm}"
INSTANT = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = 1_000
SECOND = 1_000_000

SIMPLE = {
    "Edm.Boolean": pa.bool_(),
    "Edm.Byte": pa.int16(),
    "Edm.SByte": pa.int16(),
    "Edm.Int16": pa.int16(),
    "Edm.Int32": pa.int32(),
    "Edm.Int64": pa.int64(),
    "Edm.Single": pa.float32(),
    "Edm.Double": pa.float64(),
    "Edm.Date": pa.date32(),
    "Edm.DateTimeOffset": INSTANT,
    "Edm.Binary": pa.binary(),
    "Edm.String": pa.string(),
    "Edm.Guid": pa.string(),
    "Edm.Duration": pa.string(),
    # Spark has no type for a time of day.
    "Edm.TimeOfDay": pa.string(),
}
WHOLE = ("Edm.Byte", "Edm.SByte", "Edm.Int16", "Edm.Int32", "Edm.Int64")
# Which fields can be a cursor of a type: their order at the source is the cursor's.
CURSORS: Mapping[str, tuple[str, ...]] = {
    "timestamp": ("Edm.DateTimeOffset", "Edm.Date"),
    "integer": (*WHOLE, "Edm.Decimal"),
    "decimal": (*WHOLE, "Edm.Decimal", "Edm.Double"),
    "text": ("Edm.String", "Edm.Guid", "Edm.TimeOfDay"),
}
COMPARED = {edm for each in CURSORS.values() for edm in each}


@dataclass(frozen=True, slots=True)
class Property:
    """A field of an entity, or of a complex type. `edm` is the declared type, `type` what it is in Arrow."""

    name: str
    edm: str
    type: pa.DataType
    nullable: bool = True
    precision: int | None = None
    # Of a collection, its element; of a complex type, its fields.
    parts: tuple["Property", ...] = ()
    many: bool = False

    @property
    def tick(self) -> int | None:
        """The span, in microseconds, that a filter on a timestamp can distinguish. None: a filter is exact.

        Servers cut the literals of a filter to their own precision, and may keep and show finer values than that: CAP
        compares milliseconds. Without a declared precision it is the second.
        """
        if self.edm != "Edm.DateTimeOffset" or self.many:
            return None
        return max(SECOND // int(10 ** (self.precision or 0)), MILLISECOND)

    def literal(self, value: Any) -> str:
        """A value as it was read, as it is written in a filter."""
        if self.edm in ("Edm.String", "Edm.Duration"):
            return "'" + str(value).replace("'", "''") + "'"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, datetime):
            return instant_text(round((value - EPOCH) / timedelta(microseconds=1)), self.tick or 1)
        if isinstance(value, float):
            return repr(value)
        return value.isoformat() if isinstance(value, date) else str(value)

    def bound(self, cursor: Cursor, zone: str | None, sign: Literal["ge", "lt"]) -> str:
        """The bound of a window as it is written in a filter: never one that leaves out a record inside the window."""
        if cursor.timestamp is None:
            return self.literal(str(cursor))
        instant = cursor.timestamp.instant // 1000
        if self.edm == "Edm.Date":
            return day_from(instant, zone).isoformat()
        tick = self.tick or 1
        return instant_text(instant // tick * tick if sign == "ge" else -(-instant // tick) * tick, tick)


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity set: its name, its key, and its fields in the order of the declaration."""

    name: str
    key: tuple[str, ...]
    properties: Mapping[str, Property] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type) for each in self.properties.values()])


def day_from(instant: int, zone: str | None) -> date:
    """The first day that does not begin before the instant (microseconds since 1970), in the zone."""
    moment = (EPOCH + timedelta(microseconds=instant)).astimezone(ZoneInfo(zone or "UTC"))
    begun = moment.time() != time.min
    return moment.date() + timedelta(days=1 if begun else 0)


def instant_text(instant: int, tick: int) -> str:
    """Microseconds since 1970 as text: with a fraction only where the field has one, and then with all its digits."""
    moment = EPOCH + timedelta(microseconds=instant)
    unit = "microseconds" if instant % MILLISECOND else "seconds" if tick == SECOND else "milliseconds"
    return moment.replace(tzinfo=None).isoformat(timespec=unit) + "Z"


def entities(metadata: bytes, what: str) -> dict[str, Entity]:
    """All entity sets of a service by their names."""
    try:
        root = Xml.fromstring(metadata)
    except Xml.ParseError:
        raise SourceError(f"{what}: the service's $metadata is not XML, or broke off in the middle.") from None
    schemas = list(root.iter(f"{EDM}Schema"))
    if not schemas:
        raise SourceError(f"{what}: the service's $metadata is not that of OData v4. Other versions are not supported.")
    model = _Model(schemas)
    sets = [each for schema in schemas for each in schema.iter(f"{EDM}EntitySet")]
    return {each.attrib["Name"]: model.entity(each.attrib["Name"], each.attrib["EntityType"]) for each in sets}


class _Model:
    """The types of a service by their full names."""

    def __init__(self, schemas: list[Xml.Element]) -> None:
        self._types: dict[str, Xml.Element] = {}
        for schema in schemas:
            for prefix in (schema.get("Namespace"), schema.get("Alias")):
                self._types |= {f"{prefix}.{each.get('Name')}": each for each in schema if prefix and each.get("Name")}

    def entity(self, name: str, type_name: str) -> Entity:
        key, properties = self._declared(type_name, ())
        return Entity(name, key, {each.name: each for each in properties})

    def _declared(self, type_name: str, outer: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Property, ...]]:
        """Key and fields of a type, those of its base type first."""
        declared = self._types[type_name]
        key: tuple[str, ...] = ()
        inherited: tuple[Property, ...] = ()
        if base := declared.get("BaseType"):
            key, inherited = self._declared(base, outer)
        key = tuple(each.attrib["Name"] for each in declared.iterfind(f"{EDM}Key/{EDM}PropertyRef")) or key
        # A stream's content is not part of a record.
        own = [each for each in declared.iterfind(f"{EDM}Property") if each.get("Type") != "Edm.Stream"]
        return key, (*inherited, *(self._property(each, (*outer, type_name)) for each in own))

    def _property(self, declared: Xml.Element, outer: tuple[str, ...]) -> Property:
        name, type_name = declared.attrib["Name"], declared.get("Type", "Edm.String")
        nullable = declared.get("Nullable", "true") == "true"
        if type_name.startswith("Collection("):
            item = self._typed("item", type_name[11:-1], declared, outer)
            return Property(name, item.edm, pa.list_(item.type), nullable, parts=(item,), many=True)
        return self._typed(name, type_name, declared, outer, nullable)

    def _typed(
        self, name: str, type_name: str, facets: Xml.Element, outer: tuple[str, ...], nullable: bool = True
    ) -> Property:
        kind = self._types.get(type_name)
        if kind is not None and kind.tag == f"{EDM}TypeDefinition":
            return self._typed(name, kind.attrib["UnderlyingType"], kind, outer, nullable)
        if kind is not None and kind.tag == f"{EDM}ComplexType" and type_name not in outer:
            _, parts = self._declared(type_name, outer)
            return Property(name, type_name, pa.struct([(each.name, each.type) for each in parts]), nullable, parts=parts)
        precision = int(facets.get("Precision", "")) if facets.get("Precision", "").isdigit() else None
        if type_name == "Edm.Decimal":
            return Property(name, type_name, _decimal(precision, facets.get("Scale", "0")), nullable, precision)
        # What has no type of its own here comes as its text: enumerations, places on earth, types that hold themselves.
        return Property(name, type_name, SIMPLE.get(type_name, pa.string()), nullable, precision)


def _decimal(precision: int | None, scale: str) -> pa.DataType:
    """Without a fixed place for the point, the digits go as text: no decimal holds all of them."""
    if precision is None or precision > 38 or not scale.isdigit() or int(scale) > precision:
        return pa.string()
    return pa.decimal128(precision, int(scale))
