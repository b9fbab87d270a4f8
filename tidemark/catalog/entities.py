"""Atlas entities as JSON text. The text is what is stored and carried: nothing ever parses it back to decide something."""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from tidemark.catalog.names import escaped, qualified_name
from tidemark.catalog.packs.base import ColumnFacts, DatabaseFacts, SchemaFacts, TableFacts, TableRef

TABLE_TYPES = {
    "table": "Table",
    "partitioned table": "TablePartition",
    "foreign table": "Table",
    "view": "View",
    "materialized view": "MaterialisedView",
}


def entity(type_name: str, attributes: dict[str, Any]) -> str:
    """The entity's text. Facts a source does not know are left out rather than written as null."""
    known = {name: value for name, value in attributes.items() if value is not None}
    return orjson.dumps({"typeName": type_name, "status": "ACTIVE", "attributes": known}).decode()


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
            TABLE_TYPES.get(facts.kind, "Table"),
            self._common(facts.name, facts.database, facts.schema, facts.name)
            | self._database(facts.database)
            | self._schema(facts.database, facts.schema)
            | {
                "subType": facts.kind,
                "description": facts.comment,
                "definition": facts.definition,
                "columnCount": facts.column_count,
            },
        )

    def columns(self, table: TableRef, columns: Iterable[ColumnFacts]) -> Iterator[tuple[str, str]]:
        """Qualified name and entity of every column of one table. What they share is made once."""
        unit = self.name(table.database, table.schema, table.name)
        shared = (
            {"connectorName": self.app, "connectionQualifiedName": self.connection}
            | self._database(table.database)
            | self._schema(table.database, table.schema)
            | {"tableName": table.name, "tableQualifiedName": unit}
        )
        for facts in columns:
            name = f"{unit}/{escaped(facts.name)}"
            yield (
                name,
                entity(
                    "Column",
                    {
                        "qualifiedName": name,
                        "name": facts.name,
                        **shared,
                        "order": facts.ordinal,
                        "dataType": facts.data_type,
                        "maxLength": facts.length,
                        "precision": facts.precision,
                        "numericScale": facts.scale,
                        "isNullable": facts.nullable,
                        "defaultValue": facts.default,
                        "description": facts.comment,
                        "isPrimary": facts.primary_key is not None,
                        "primaryKeyPosition": facts.primary_key,
                        "isForeign": bool(facts.foreign_keys),
                        "foreignKeyTo": [self.name(*target) for target in facts.foreign_keys] or None,
                    },
                ),
            )

    def _database(self, database: str) -> dict[str, str]:
        return {"databaseName": database, "databaseQualifiedName": self.name(database)}

    def _schema(self, database: str, schema: str) -> dict[str, str]:
        return {"schemaName": schema, "schemaQualifiedName": self.name(database, schema)}
