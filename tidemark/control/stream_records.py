"""What the registry of streams hands out and takes in. No value of state is in the `repr` of any of it."""

from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from tidemark.control.sealing import Place


@dataclass(frozen=True)
class StreamState:
    """How far a stream was read; `version` counts the moves, and the value is kept out of whatever prints this."""

    tenant_id: str
    connector_id: str
    stream_id: str
    last_cursor: str = field(repr=False)
    cursor_field: str
    version: int
    updated_at: datetime
    run_id: str | None


@dataclass(frozen=True)
class StreamMove:
    """One move of a stream's state, written with it and never changed; it holds no value."""

    id: int
    tenant_id: str
    connector_id: str
    stream_id: str
    kind: str  # commit, rewind or reset
    from_version: int | None
    to_version: int
    restored_version: int | None  # the version whose value a rewind took up again
    run_id: str | None
    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class Stream:
    """A stream of a tenant's connector: what every row is about."""

    tenant_id: str
    connector_id: str
    stream_id: str

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.connector_id}/{self.stream_id}"

    def at(self, version: int) -> Place:
        return Place(self.tenant_id, self.connector_id, self.stream_id, version)

    def rows(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """The condition that every query on one stream begins with."""
        return sa.and_(*(table.c[name] == value for name, value in vars(self).items()))


@dataclass(frozen=True)
class Cursor:
    """A value, and the field of the source that it is of."""

    of: str
    value: str = field(repr=False)


@dataclass(frozen=True)
class Entry:
    """What the audit says of a move beside its versions."""

    kind: str
    actor: str
    reason: str
    run_id: str | None = None
    restored_version: int | None = None
