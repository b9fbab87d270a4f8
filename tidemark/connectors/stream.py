"""What a manifest says of one stream."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from tidemark.config.values import Count, Percent, Section, Switch, Text, TextList
from tidemark.connectors import timestamps
from tidemark.connectors.cursors import Cursor, CursorType, Fields, Types, field_text
from tidemark.connectors.durations import ZERO, Duration
from tidemark.connectors.field_types import checked_type
from tidemark.errors import CursorInvalid, UsageError
from tidemark.store.keys import checked_id

DEFAULT_PAGE = 10_000


class ManifestSection(Section):
    """A part of a manifest: its keys are written with underscores."""

    model_config = ConfigDict(alias_generator=None)


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _one_or_more(value: Any) -> Any:
    """A list of one is as good as the one."""
    value = _listed(value)
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def checked_name(text: str) -> str:
    """An id that fits into paths and table names; a ValueError says what is allowed."""
    try:
        return checked_id(text, "it")
    except UsageError:
        allowed = "up to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        raise ValueError(f"must be {allowed}.") from None


class StreamSpec(ManifestSection):
    """A stream: one table, entity, folder or topic of the source, and how its changes are read."""

    id: str
    """The stream's id in state and in the lake. It never changes."""
    source: Text = ""
    """The table, entity, path or topic at the source. Without it, the last part of the id."""
    key: Annotated[TextList, Field(min_length=1)]
    """The fields that identify a record."""
    cursor: Annotated[Text | Annotated[tuple[Text, ...], Field(min_length=1)] | None, BeforeValidator(_one_or_more)] = None
    """The field that orders changes, or a list of fields. Without it, every run reads everything."""
    cursor_type: Annotated[CursorType | tuple[CursorType, ...], BeforeValidator(_listed)] = "timestamp"
    """What the cursor's values are; a list for a list of fields of several types."""
    cursor_zone: str | None = None
    """The time zone of timestamps without an offset, such as Europe/Berlin."""
    schema_strategy: Literal["discovery", "fixed", "evolve"] = "discovery"
    """Whether the fields are asked from the source, fixed here, or also taken from the records as they come."""
    fixed_schema: dict[str, str] | None = Field(default=None, alias="schema")
    """The fields and their types, with schema_strategy fixed."""
    state_handling: Literal["platform_registry"] = "platform_registry"
    """Where progress is kept: with the platform, never here."""
    safety_window: Duration = ZERO
    """How far before the committed cursor a run begins, for records that become visible late: PT5M."""
    hold_back: Duration = ZERO
    """How far before the source's present a run ends, for changes that are still under way."""
    page_size: Count = DEFAULT_PAGE
    """Records in one page."""
    null_cursor: Literal["fail", "include", "exclude"] = "fail"
    """What becomes of records whose cursor is NULL: the run fails, every run reads them, or none does."""
    baseline: Annotated[Any, Field(repr=False)] = None
    """The cursor value that the first run begins at. Without it, it reads everything."""
    full_refresh_fallback: Switch = False
    """Whether a cursor that is found to run backwards leads to a full refresh instead of a failure."""
    deletes: Literal["none", "compare", "flag", "log"] = "none"
    """How deletions are found: not at all, by comparing keys, by a field that marks them, or in the source's log."""
    delete_flag: Text | None = None
    """The field that marks deleted records, with deletes flag."""
    max_deleted_percent: Percent = 50
    """With deletes compare: a run that would delete more of what is live (and more than ten) stops until it is allowed."""
    on_type_change: Literal["new_column", "reject"] = "new_column"
    """What becomes of a field whose type changes: its new values get a column of their own, or the run fails."""

    @property
    def source_name(self) -> str:
        """What the stream is called at the source."""
        return self.source or self.id.rpartition(".")[2]

    @property
    def cursor_fields(self) -> tuple[str, ...]:
        """The fields of the cursor: none, one, or those of a composite."""
        return (self.cursor,) if isinstance(self.cursor, str) else self.cursor or ()

    @property
    def cursor_field(self) -> str | None:
        """The cursor's field as it stands in state."""
        return None if self.cursor is None else field_text(self.cursor)

    @property
    def cursor_types(self) -> Types:
        """The type of the cursor; one for each part of a composite."""
        if isinstance(self.cursor, tuple) and isinstance(self.cursor_type, str):
            return (self.cursor_type,) * len(self.cursor)
        return self.cursor_type

    def parse_cursor(self, raw: Any) -> Cursor:
        """A value of this stream's cursor, as the source gave it or as state keeps it. CursorInvalid if it is none."""
        return _parsed(self.cursor_types, raw, self.cursor_zone, self.id, self.cursor)

    def baseline_cursor(self) -> Cursor | None:
        """The cursor that a run without state begins at."""
        return None if self.baseline is None else self.parse_cursor(self.baseline)

    @field_validator("id")
    @classmethod
    def _id_fits_into_a_path(cls, id: str) -> str:
        return checked_name(id)

    @field_validator("key", "cursor")
    @classmethod
    def _fields_are_named_once(cls, fields: Any) -> Any:
        if isinstance(fields, tuple) and len(set(fields)) < len(fields):
            raise ValueError("names a field twice.")
        return fields

    @field_validator("cursor_type", mode="before")
    @classmethod
    def _type_is_known(cls, given: Any) -> Any:
        # One message instead of pydantic's two, one for each way to write it.
        known = ("timestamp", "integer", "decimal", "text")
        if given not in known and not (isinstance(given, list | tuple) and given and all(each in known for each in given)):
            raise ValueError(f"must be one of {', '.join(known)}, or a list of them.")
        return given

    @field_validator("cursor_type")
    @classmethod
    def _types_match_the_fields(cls, types: Types, info: ValidationInfo) -> Types:
        cursor = info.data.get("cursor")
        if isinstance(types, tuple) and not (isinstance(cursor, tuple) and len(cursor) == len(types)):
            raise ValueError("a list of types needs a list of as many fields in cursor.")
        return types

    @field_validator("cursor_zone")
    @classmethod
    def _zone_is_known(cls, zone: str | None) -> str | None:
        try:
            return zone and timestamps.known_zone(zone).key
        except timestamps.NotATimestamp:
            raise ValueError("there is no such time zone. Write a name such as Europe/Berlin or UTC.") from None

    @field_validator("fixed_schema")
    @classmethod
    def _schema_is_of_known_types(cls, schema: dict[str, str] | None, info: ValidationInfo) -> dict[str, str] | None:
        if schema is None:
            return None
        if info.data.get("schema_strategy", "fixed") != "fixed":
            raise ValueError("is only for schema_strategy: fixed. Leave it out, or set that.")
        if not schema:
            raise ValueError("must have at least one field.")
        typed = {}
        for field, name in schema.items():
            try:
                typed[field] = checked_type(name)
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from None
        return typed

    @field_validator("safety_window", "hold_back")
    @classmethod
    def _span_needs_a_clock(cls, span: Duration, info: ValidationInfo) -> Duration:
        types = info.data.get("cursor_type", "timestamp")
        first = types if isinstance(types, str) else types[0]
        if span and (info.data.get("cursor", "") is None or first != "timestamp"):
            raise ValueError("is a length of time: it needs a cursor whose (first) type is timestamp.")
        return span

    @field_validator("baseline")
    @classmethod
    def _baseline_is_a_cursor(cls, baseline: Any, info: ValidationInfo) -> Any:
        if baseline is None or not {"id", "cursor", "cursor_type", "cursor_zone"} <= info.data.keys():
            return baseline  # something else is wrong, and reported already
        cursor, types = info.data["cursor"], info.data["cursor_type"]
        if cursor is None:
            raise ValueError("needs a cursor.")
        if isinstance(cursor, tuple) and isinstance(types, str):
            types = (types,) * len(cursor)
        try:
            _parsed(types, baseline, info.data["cursor_zone"], info.data["id"], cursor)
        except CursorInvalid as error:
            raise ValueError(f"cannot be a cursor: {str(error).partition(': ')[2]}") from None
        return _listed(baseline)

    @field_validator("delete_flag")
    @classmethod
    def _flag_is_of_deletes(cls, flag: str | None, info: ValidationInfo) -> str | None:
        if flag is not None and info.data.get("deletes", "flag") != "flag":
            raise ValueError("is only for deletes: flag. Leave it out, or set that.")
        return flag

    @field_validator("max_deleted_percent")
    @classmethod
    def _guard_is_of_comparisons(cls, percent: int, info: ValidationInfo) -> int:
        if info.data.get("deletes", "compare") != "compare":
            raise ValueError("is only for deletes: compare. Leave it out, or set that.")
        return percent

    @model_validator(mode="after")
    def _nothing_is_missing(self) -> Self:
        if self.schema_strategy == "fixed" and self.fixed_schema is None:
            raise ValueError("schema_strategy: fixed needs the fields and their types in schema.")
        if self.deletes == "flag" and self.delete_flag is None:
            raise ValueError("deletes: flag needs the field that marks deleted records in delete_flag.")
        if self.fixed_schema is not None:
            lacking = [name for name in (*self.key, *self.cursor_fields) if name not in self.fixed_schema]
            if lacking:
                raise ValueError(f"schema lacks a field of the key or the cursor: {', '.join(lacking)}.")
        return self


def _parsed(types: Types, raw: Any, zone: str | None, stream: str, cursor: Fields | None) -> Cursor:
    if cursor is None:
        raise CursorInvalid(f"{stream}: the stream has no cursor; every run reads everything.")
    return Cursor.parse(types, raw, zone=zone, stream=stream, field=cursor)
