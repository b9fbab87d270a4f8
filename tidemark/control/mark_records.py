"""What the store of marks hands out and takes in. No value is in the `repr` of any of it."""

import dataclasses
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Mark:
    """How far a subject has got; `version` counts the moves, and the value is kept out of whatever prints this."""

    subject: str
    version: int
    value: str = dataclasses.field(repr=False)
    field: str | None  # of the source, that the value is of: a stream's cursor
    snapshot: int | None
    run_id: str | None
    moved_at: datetime


@dataclass(frozen=True)
class MarkMoment:
    """When a mark moved last, without its value."""

    subject: str
    version: int
    moved_at: datetime


@dataclass(frozen=True)
class AuditRow:
    """One move of a mark, written with it and never changed; it holds no value."""

    id: int
    subject: str
    tenant: str
    kind: str  # commit, rewind or reset
    from_version: int | None
    to_version: int
    restored_version: int | None  # the version whose value a rewind took up again
    snapshot: int | None
    run_id: str | None
    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class Value:
    """A value, and the field of the source that it is of."""

    text: str = dataclasses.field(repr=False)
    of: str | None


@dataclass(frozen=True)
class Move:
    """What the audit says of a move besides its versions."""

    kind: str
    actor: str
    reason: str
    run_id: str | None = None
    snapshot: int | None = None
    restored_version: int | None = None


@dataclass(frozen=True)
class Made:
    """A move as it was written: `before` is None for the first, and a reset has no value."""

    subject: str
    before: int | None
    version: int
    value: Value | None
    move: Move
    at: datetime
