"""Source packs: one file per kind of database that the catalogue can read."""

from tidemark.catalog.packs.base import (
    ColumnFacts,
    DatabaseFacts,
    Listing,
    PackedTables,
    Partitioning,
    SchemaFacts,
    SourcePack,
    TableFacts,
    TableReading,
    TableRef,
    is_known,
    known_apps,
    pack_for,
)

__all__ = [
    "ColumnFacts",
    "DatabaseFacts",
    "Listing",
    "PackedTables",
    "Partitioning",
    "SchemaFacts",
    "SourcePack",
    "TableFacts",
    "TableReading",
    "TableRef",
    "is_known",
    "known_apps",
    "pack_for",
]
