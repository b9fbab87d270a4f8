"""The tables that models may read besides each other: Bronze, and what others write into the lake."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.config import Config
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.place import StreamPlace
from tidemark.connectors.stream import StreamSpec
from tidemark.models.lineage import Fields

ENVELOPE = (
    "stream", "emitted_at", "cursor", "key", "record", "key_hash", "content_hash", "run_id", "operation", "arrival",
)  # fmt: skip
LATEST = ("stream", "emitted_at", "cursor", "key", "record", "content_hash", "run_id")


@dataclass(frozen=True)
class BronzeName:
    """One of the names under which a stream of a tenant can be read."""

    name: str
    place: StreamPlace
    columns: Fields
    """As far as the manifest says: the fields of a record are only known of a fixed schema."""


def bronze_names(config: Config, manifests: Mapping[str, Manifest]) -> dict[str, BronzeName]:
    """Every table and view of Bronze, by its name."""
    return {
        each.name: each
        for tenant in config.tenants
        for manifest in manifests.values()
        for stream in manifest.streams
        for each in _names_of(StreamPlace(tenant, manifest.connector, stream.id), stream)
    }


def _names_of(place: StreamPlace, stream: StreamSpec) -> Iterator[BronzeName]:
    inner = {"key": Fields.named(*stream.key), "record": Fields.named(*(stream.fixed_schema or ()))}
    whole = Fields({name: inner.get(name, Fields()) for name in ENVELOPE})
    yield BronzeName(place.table, place, whole)
    yield BronzeName(place.changes, place, whole)
    yield BronzeName(place.latest, place, Fields({name: inner.get(name, Fields()) for name in LATEST}))
    yield BronzeName(place.quarantine, place, Fields())


def fields_of(type_: Any) -> Fields:
    """The fields of a pyiceberg schema or struct, at every depth."""
    listed = getattr(type_, "fields", ())
    return Fields({each.name: fields_of(each.field_type) for each in listed})


def known_now(bronze: BronzeName, table: Any) -> Fields:
    """What a name of Bronze has now that its table is there: the view's columns, the record's fields."""
    stored = fields_of(table.schema())
    return Fields({name: stored.of.get(name, below) for name, below in bronze.columns.of.items()}) if stored.of else stored
