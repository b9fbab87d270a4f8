"""A source pack for tests that shows many real databases as one source, so that one run covers them all."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, Literal

from tidemark.catalog.packs.base import ColumnFacts, Listing, SourcePack, TableFacts, TableReading, TableRef, pack_for
from tidemark.catalog.scope import Scope


class ManyDatabases(SourcePack):
    """`many://{"name": ["app", "url"], …}`: each database under a name of the test's own."""

    app: ClassVar[str] = "many"
    signal: ClassVar[Literal["digest", "clock"]] = "digest"
    schemes: ClassVar[tuple[str, ...]] = ("many",)

    @staticmethod
    def target_of(url: str) -> str:
        return "many databases"

    @property
    def members(self) -> dict[str, SourcePack]:
        return {name: pack_for(*where) for name, where in json.loads(self.url.removeprefix("many://")).items()}

    def listing(self, scope: Scope, since: datetime | None = None) -> Listing:
        listings = {name: pack.listing(scope, since) for name, pack in self.members.items()}
        return Listing(
            identity="many",
            clock=min(each.clock for each in listings.values()),
            databases=tuple(replace(d, name=n) for n, each in listings.items() for d in each.databases),
            schemas=tuple(replace(s, database=n) for n, each in listings.items() for s in each.schemas),
            tables=tuple(placed(t, n) for n, each in listings.items() for t in each.tables),
        )

    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        for name, pack in self.members.items():
            real = next(iter(pack.listing(Scope()).databases)).name
            asked = {replace(table, database=real): table for table in tables if table.database == name}
            if not asked:
                continue
            for found, reading in pack.columns(list(asked)):
                yield asked[found], moved(reading, name) if reading else None


def placed(table: TableFacts, database: str) -> TableFacts:
    """The table as if its database had another name."""
    parent = (database, *table.partition_of[1:]) if table.partition_of else None
    inherits = tuple((database, schema, name) for _, schema, name in table.inherits)
    return replace(table, database=database, partition_of=parent, inherits=inherits)


def moved(reading: TableReading, database: str) -> TableReading:
    return TableReading(placed(reading.table, database), tuple(renamed(column, database) for column in reading.columns))


def renamed(column: ColumnFacts, database: str) -> ColumnFacts:
    targets = tuple((database, schema, table, name) for _, schema, table, name in column.foreign_keys)
    return replace(column, foreign_keys=targets)
