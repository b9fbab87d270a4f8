"""Messages of Kafka as records: the fields of JSON objects, or the value as it is, and where each message is from."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from tidemark.connectors.contract import OPERATION, rejected
from tidemark.connectors.field_types import arrow_type
from tidemark.connectors.json_lines import fields_of_objects, is_object, merged_fields, objects_that_fit, settled
from tidemark.connectors.kinds._kafka_client import Message
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import SchemaRefused

INSTANT = pa.timestamp("us", tz="UTC")
OWN = {
    "_position": pa.string(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_timestamp": INSTANT,
    "_key": pa.string(),
}
VALUES = {"text": pa.string(), "binary": pa.binary()}
FORMATS = ("json", *VALUES)

NO_OBJECT = "a message is no JSON object in UTF-8"
NO_TEXT = "a message is no UTF-8"
NO_FIT = "a message does not fit the types of the fields"
NO_KEY = "a message without a value has no key that says which record is gone"


@dataclass(frozen=True)
class Records:
    """How the messages of one stream become records."""

    stream: StreamSpec
    format: str

    # --- fields ------------------------------------------------------------------------------------------------------

    @property
    def told(self) -> bool:
        """Whether the fields are known without a look at the messages."""
        return self.format != "json" or self.stream.fixed_schema is not None

    def fields(self, batches: Iterable[list[Message]], known: dict[str, pa.DataType]) -> pa.Schema:
        """The fields of all these messages. `known` has types of key fields that messages do not show this time."""
        if self.format != "json":
            return self._whole({"_value": VALUES[self.format]})
        if self.stream.fixed_schema is not None:
            typed = {name: arrow_type(text) for name, text in self.stream.fixed_schema.items()}
            return self._whole({name: type_ for name, type_ in typed.items() if name not in OWN})
        found: dict[str, pa.DataType] = {}
        of_keys: dict[str, pa.DataType] = {}
        for batch in batches:
            values = [message.value for message in batch if message.value is not None]
            found = merged_fields(found, fields_of_objects([value for value in values if is_object(value)]))
            for gone in (self._gone(message) for message in batch if message.value is None):
                of_keys = merged_fields(of_keys, {name: plain_type(value) for name, value in (gone or {}).items()})
        typed = {name: settled(type_) for name, type_ in found.items()}
        body = {name: type_ for name, type_ in typed.items() if type_ is not None}
        taken = sorted(body.keys() & {*OWN, OPERATION})
        if taken:
            raise SchemaRefused(
                f"{self.stream.id}: messages have a field {', '.join(taken)}, a name that is needed for what Kafka says of "
                "them. Name the fields that are wanted, with schema_strategy: fixed."
            )
        for name in self._keys_in_objects:
            body.setdefault(name, known.get(name) or of_keys.get(name) or pa.string())
        return self._whole(body)

    def _whole(self, body: dict[str, pa.DataType]) -> pa.Schema:
        lacking = [name for name in self.stream.key if name not in body and name not in OWN]
        if lacking:
            raise SchemaRefused(
                f"{self.stream.id}: messages in the format {self.format} have no field {', '.join(lacking)}, which the "
                f"manifest names as key. They have: {', '.join([*body, *OWN])}."
            )
        return pa.schema([*body.items(), *OWN.items()])

    @property
    def _keys_in_objects(self) -> list[str]:
        return [name for name in self.stream.key if name not in OWN]

    # --- pages -------------------------------------------------------------------------------------------------------

    def pages(self, messages: list[Message], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The messages as a page of records, and as pages of what cannot be read as records."""
        body = pa.schema([field for field in schema if field.name not in OWN])
        refused: dict[str, list[Message]] = {}
        if self.format == "json":
            kept, columns = self._objects(messages, body, refused)
        else:
            kept, columns = self._values(messages, refused)
        if kept:
            operations = ["delete" if message.value is None else "upsert" for message in kept]
            whole = [columns[field.name] if field.name in columns else of_kafka(field.name, kept) for field in schema]
            yield pa.record_batch(
                [*whole, pa.array(operations, pa.string())], schema=schema.append(pa.field(OPERATION, pa.string()))
            )
        for reason, broken in refused.items():
            yield rejected([as_text(message) for message in broken], reason)

    def _values(
        self, messages: list[Message], refused: dict[str, list[Message]]
    ) -> tuple[list[Message], dict[str, pa.Array]]:
        kept, values = [], []
        for message in messages:
            if self.format == "text" and not is_text(message.value):
                refused.setdefault(NO_TEXT, []).append(message)
            else:
                kept.append(message)
                values.append(message.value)
        return kept, {"_value": pa.array(values, pa.binary()).cast(VALUES[self.format])}

    def _objects(
        self, messages: list[Message], body: pa.Schema, refused: dict[str, list[Message]]
    ) -> tuple[list[Message], dict[str, pa.Array]]:
        readable: list[Message] = []
        objects: list[bytes] = []
        for message in messages:
            value = message.value if message.value is not None else self._object_of_gone(message, body)
            if value is None:
                refused.setdefault(NO_KEY, []).append(message)
            elif not is_object(value):
                refused.setdefault(NO_OBJECT, []).append(message)
            else:
                readable.append(message)
                objects.append(value)
        table, unfit = objects_that_fit(objects, body)
        if unfit:
            refused[NO_FIT] = [readable[place] for place in unfit]
            readable = [message for place, message in enumerate(readable) if place not in set(unfit)]
        return readable, {name: table[name].combine_chunks() for name in table.schema.names}

    # --- messages without a value ------------------------------------------------------------------------------------

    def _gone(self, message: Message, body: pa.Schema | None = None) -> dict[str, Any] | None:
        """The key fields of a record that is gone, from the message's key: an object, or the value of a single field."""
        wanted, key = self._keys_in_objects, message.key
        if not wanted:
            return {}
        if key is None or not is_text(key):
            return None
        try:
            found = orjson.loads(key)
        except orjson.JSONDecodeError:
            found = key.decode()
        if isinstance(found, dict):
            return {name: found[name] for name in wanted} if all(found.get(name) is not None for name in wanted) else None
        if len(wanted) > 1:
            return None
        if body is not None and pa.types.is_string(body.field(wanted[0]).type) and not isinstance(found, str):
            found = key.decode()  # a text that looks like a number
        return None if found is None or isinstance(found, list) else {wanted[0]: found}

    def _object_of_gone(self, message: Message, body: pa.Schema) -> bytes | None:
        found = self._gone(message, body)
        return None if found is None else orjson.dumps(found)


def is_text(content: bytes | None) -> bool:
    try:
        return content is None or content.decode() is not None
    except UnicodeDecodeError:
        return False


def of_kafka(name: str, messages: list[Message]) -> pa.Array:
    """One of the columns that say where messages are from."""
    if name == "_position":
        return pa.array([message.position for message in messages], OWN[name])
    if name == "_partition":
        return pa.array([message.partition for message in messages], OWN[name])
    if name == "_offset":
        return pa.array([message.offset for message in messages], OWN[name])
    if name == "_timestamp":
        return pa.array([message.milliseconds for message in messages], pa.timestamp("ms", tz="UTC")).cast(INSTANT)
    return pa.array([readable(message.key) for message in messages], OWN[name])


def plain_type(value: Any) -> pa.DataType:
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}.get(type(value), pa.string())


def readable(content: bytes | None) -> str | None:
    """Bytes as text; those that are none are written as \\xff."""
    return None if content is None else content.decode(errors="backslashreplace")


def as_text(message: Message) -> str:
    """A message as the quarantine keeps it."""
    kept = {
        "_position": message.position,
        "_key": readable(message.key),
        "_value": readable(message.value),
    }
    return json.dumps(kept, ensure_ascii=False)
