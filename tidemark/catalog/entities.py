"""Atlas entities as JSON text. The text is what is stored and carried: nothing ever parses it back to decide something."""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from tidemark.catalog.names import escaped, qualified_name
from tidemark.catalog.packs.base import ColumnFacts, DatabaseFacts, SchemaFacts, TableFacts, TableRef

# Part of every digest: when entities get another form, every table is read again.
ENTITY_FORM = "2"

TABLE_TYPES = {
    "table": "Table",
    "partitioned table": "Table",
    "foreign table": "Table",
    "view": "View",
    "materialized view": "MaterialisedView",
}


COLUMN_HEAD = b'{"typeName":"Column","status":"ACTIVE","attributes":'


def entity(type_name: str, attributes: dict[str, Any]) -> str:
    """The entity's text. Facts a source does not know are left out rather than written as null."""
    known = {name: value for name, value in attributes.items() if value is not None}
    return orjson.dumps({"typeName": type_name, "status": "ACTIVE", "attributes": known}).decode()


def signal_of(facts: TableFacts) -> str:
    """The digest of a table as it is stored."""
    return f"{ENTITY_FORM}:{facts.digest}"


class EntityWriter:
    """Writes the entities of one connection."""

    def __init__(self, app: str, connection_id: str) -> None:
        self.app = app
        self.connection_id = connection_id
        self.connection = qualified_name(app, connection_id)

    def name(self, *parts: str) -> str:
        return qualified_name(self.app, self.connection_id, *parts)

    def _common(self, name: str, *path: str) -> dict[str, Any]:
        return {
            "qualifiedName": self.name(*path),
            "name": name,
            "connectorName": self.app,
            "connectionQualifiedName": self.connection,
        }

    def database(self, facts: DatabaseFacts) -> str:
        return entity("Database", self._common(facts.name, facts.name) | {"description": facts.comment})

    def schema(self, facts: SchemaFacts) -> str:
        return entity(
            "Schema",
            self._common(facts.name, facts.database, facts.name)
            | self._database(facts.database)
            | {"description": facts.comment},
        )

    def table(self, facts: TableFacts) -> str:
        return entity(
            "TablePartition" if facts.partition_of else TABLE_TYPES.get(facts.kind, "Table"),
            self._common(facts.name, facts.database, facts.schema, facts.name)
            | self._database(facts.database)
            | self._schema(facts.database, facts.schema)
            | {
                "subType": facts.kind,
                "description": facts.comment,
                "definition": facts.definition,
                "columnCount": facts.column_count,
                "inheritsFrom": [self.name(*parent) for parent in facts.inherits] or None,
            }
            | self._partitioning(facts),
        )

    def _partitioning(self, facts: TableFacts) -> dict[str, Any]:
        """What a partitioned table and a partition know of each other."""
        known: dict[str, Any] = {}
        if facts.partitioning:
            known |= {
                "isPartitioned": True,
                "partitionStrategy": facts.partitioning.strategy,
                "partitionKeys": facts.partitioning.keys,
                "partitionCount": facts.partitioning.count,
            }
        if facts.partition_of:
            known |= {
                "parentTableName": facts.partition_of[-1],
                "parentTableQualifiedName": self.name(*facts.partition_of),
                "constraint": facts.partition_bound,
            }
        return known

    def columns(self, table: TableRef, columns: Iterable[ColumnFacts]) -> Iterator[tuple[str, str]]:
        """Qualified name and entity of every column of one table. What they share is made text once."""
        unit = self.name(table.database, table.schema, table.name)
        shared = orjson.dumps(
            {"connectorName": self.app, "connectionQualifiedName": self.connection}
            | self._database(table.database)
            | self._schema(table.database, table.schema)
            | {"tableName": table.name, "tableQualifiedName": unit}
        )
        between = b"," + shared[1:-1] + b","
        for facts in columns:
            name = f"{unit}/{escaped(facts.name)}"
            named = orjson.dumps({"qualifiedName": name, "name": facts.name})
            own = orjson.dumps(self._own(facts))
            yield name, (COLUMN_HEAD + named[:-1] + between + own[1:] + b"}").decode()

    def _own(self, facts: ColumnFacts) -> dict[str, Any]:
        """What a column does not share with others of its table. Most have few of the facts that may be missing."""
        own: dict[str, Any] = {"order": facts.ordinal, "dataType": facts.data_type}
        if facts.length is not None:
            own["maxLength"] = facts.length
        if facts.precision is not None:
            own["precision"] = facts.precision
        if facts.scale is not None:
            own["numericScale"] = facts.scale
        own["isNullable"] = facts.nullable
        if facts.default is not None:
            own["defaultValue"] = facts.default
        if facts.comment is not None:
            own["description"] = facts.comment
        own["isPrimary"] = facts.primary_key is not None
        if facts.primary_key is not None:
            own["primaryKeyPosition"] = facts.primary_key
        own["isForeign"] = bool(facts.foreign_keys)
        if facts.foreign_keys:
            own["foreignKeyTo"] = [self.name(*target) for target in facts.foreign_keys]
        return own

    def _database(self, database: str) -> dict[str, str]:
        return {"databaseName": database, "databaseQualifiedName": self.name(database)}

    def _schema(self, database: str, schema: str) -> dict[str, str]:
        return {"schemaName": schema, "schemaQualifiedName": self.name(database, schema)}
