"""What a connector is, what it is given, and what it promises.

A connector keeps nothing between runs. The platform hands it the state, fixes the window before anything is read, splits
it into slices that are read in parallel, lands the pages, and moves the mark last.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tidemark.connectors.cursors import Cursor
from tidemark.connectors.stream import DEFAULT_PAGE, StreamSpec
from tidemark.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

__all__ = [
    "OPERATION",
    "REJECTED",
    "CheckpointConnector",
    "Connector",
    "InputState",
    "OutputState",
    "Slice",
    "StreamDescription",
    "StreamSpec",
    "Window",
    "fixed_window",
    "rejected",
]


@dataclass(frozen=True, slots=True)
class InputState:
    """The committed progress of a stream, as a run begins with it: read only. Without a value, nothing is committed."""

    stream_id: str
    cursor_field: str
    cursor_value: str | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The object as other programs read it: these keys in this order."""
        return {"stream_id": self.stream_id, "cursor_field": self.cursor_field, "cursor_value": self.cursor_value}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "InputState":
        return cls(given["stream_id"], given["cursor_field"], given["cursor_value"])


@dataclass(frozen=True, slots=True)
class OutputState:
    """The progress of a stream after a run that succeeded. A run that fails has none."""

    stream_id: str
    cursor_field: str
    cursor_value: str | None = field(repr=False)
    records_emitted: int

    def to_json(self) -> dict[str, Any]:
        """The object as other programs read it: these keys in this order."""
        return {
            "stream_id": self.stream_id,
            "cursor_field": self.cursor_field,
            "cursor_value": self.cursor_value,
            "records_emitted": self.records_emitted,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "OutputState":
        return cls(given["stream_id"], given["cursor_field"], given["cursor_value"], given["records_emitted"])


@dataclass(frozen=True, slots=True)
class Window:
    """What a run reads of a stream, fixed before it reads: from `lower` on, to below `upper`.

    None is open: from the beginning, or without an end. `closed` takes in `upper` itself.
    """

    lower: Cursor | None = None
    upper: Cursor | None = None
    closed: bool = False

    @property
    def empty(self) -> bool:
        """Whether no value can be in it, as when the source's clock is behind the committed cursor."""
        if self.lower is None or self.upper is None:
            return False
        return self.lower > self.upper if self.closed else self.lower >= self.upper

    def __contains__(self, cursor: Cursor) -> bool:
        if self.lower is not None and cursor < self.lower:
            return False
        return self.upper is None or cursor < self.upper or (self.closed and cursor == self.upper)


def fixed_window(stream: StreamSpec, committed: Cursor | None, now: Cursor | None) -> Window:
    """The window of a run: from the committed cursor less the safety window, to the source's now less the hold-back.

    A source's clock moves on, so its present tick is left to the next run. The greatest number or text that a source
    holds may stay the greatest for ever, so a window that ends there takes it in.
    """
    if stream.cursor is None:
        return Window()
    lower = stream.baseline_cursor() if committed is None else committed.minus(stream.safety_window)
    if now is None:
        return Window(lower)
    types = stream.cursor_types
    by_the_clock = (types if isinstance(types, str) else types[0]) == "timestamp"
    return Window(lower, now.minus(stream.hold_back), closed=not by_the_clock)


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a window that one task reads. Bounds are cursors in the form that state keeps, `lower` included.

    `upper` is excluded unless `closed`. `nulls` means the records whose cursor is NULL and no others. `detail` is the
    connector's own (files, partitions and offsets): plain JSON, never a secret.
    """

    number: int
    lower: str | None = field(default=None, repr=False)
    upper: str | None = field(default=None, repr=False)
    closed: bool = False
    nulls: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def window(self, stream: StreamSpec) -> Window:
        """The bounds as cursors."""
        lower = None if self.lower is None else stream.parse_cursor(self.lower)
        return Window(lower, None if self.upper is None else stream.parse_cursor(self.upper), self.closed)

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "lower": self.lower,
            "upper": self.upper,
            "closed": self.closed,
            "nulls": self.nulls,
            "detail": dict(self.detail),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Slice":
        return cls(**given)


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """What a source says of something that could be a stream; `key` and `cursors` are proposals for the manifest."""

    source: str
    key: tuple[str, ...] = ()
    cursors: tuple[str, ...] = ()
    comment: str | None = None


class Pace:
    """Lets one through at a time, at most so many in a second."""

    def __init__(self, per_second: float | None) -> None:
        self.per_second = per_second
        self._gap = 1 / per_second if per_second else 0.0
        self._next = 0.0

    def __getstate__(self) -> dict[str, float | None]:
        # Another machine's clock began to count at another time.
        return self.__dict__ | {"_next": 0.0}

    def wait(self) -> None:
        if not self._gap:
            return
        moment = max(self._next, time.monotonic())
        self._next = moment + self._gap
        time.sleep(max(0.0, moment - time.monotonic()))


class Connector(ABC):
    """Reads one source. Made from settings and credentials alone, so that it can be made again in every task.

    It is picklable until it is first used and keeps no progress. What it raises is a SourceError with the stream's
    name, without a value of a record, of state or of a credential.
    """

    kind: ClassVar[str]
    # Whose connector it is, tenant and connector: for names of what it makes at the source.
    owner: str = ""
    # Records in a page where the manifest leaves it to the kind.
    default_page: ClassVar[int] = DEFAULT_PAGE

    _by_kind: ClassVar[dict[str, type["Connector"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            Connector._by_kind[cls.kind] = cls

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> None:
        """Takes both as they are used: references to the environment are already put in. Opens nothing.

        A subclass checks its settings here, and raises a ConfigError that names the setting.
        """
        self.settings = dict(settings)
        self.credentials = dict(credentials)
        self._pace = Pace(None)

    def __repr__(self) -> str:
        # Settings may hold an address with a login.
        return f"{type(self).__name__}({self.kind})"

    def __enter__(self) -> "Connector":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def page_size(self, stream: StreamSpec) -> int:
        """Records in a page: what the manifest says, or what suits the kind."""
        return stream.page_size if "page_size" in stream.model_fields_set else self.default_page

    @abstractmethod
    def streams(self) -> list[StreamDescription]:
        """What the source has to offer to these credentials, in a stable order."""

    @abstractmethod
    def discover(self, stream: StreamSpec) -> "pa.Schema":
        """The fields of the stream as the source describes them now. Every page of `read` has the same ones."""

    @abstractmethod
    def now(self, stream: StreamSpec) -> Cursor | None:
        """The source's own upper end, of the cursor's type, asked before anything is read.

        For a timestamp it is the source's clock: no record that becomes visible later, apart from those that the
        hold-back and the safety window are for, has an earlier cursor. For every other type it is the greatest value
        that the source holds. For a composite, it begins with that and may have fewer parts. None if the stream has no
        cursor, or the source has no record.
        """

    @abstractmethod
    def count(self, stream: StreamSpec, window: Window) -> int | None:
        """How many records with a cursor are in the window (without a cursor: in the stream). None if it cannot count."""

    @abstractmethod
    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        """The window cut into about so many parts, numbered from 0 in the order of their bounds.

        Together they hold every value of the window once: each begins where the one before ends, the first has the
        window's lower bound, the last its upper one and its `closed`. Unless `null_cursor` is `exclude`, one more slice
        with `nulls` follows if the cursor can be NULL: with `fail`, the platform stops at the first record of it. An
        empty window has no slices.
        """

    @abstractmethod
    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator["pa.RecordBatch"]:
        """The records of the slice, one batch a page, at most `page_size` records each, no empty page.

        Pages follow each other by keyset on cursor and key, never by offset, so that equal cursors may go over a page
        boundary and a page is never read twice. The records within a slice are in the order of cursor and key. Every
        record that was in the slice when `now` was asked, and has not changed since, comes exactly once.
        """

    @abstractmethod
    def close(self) -> None:
        """Lets go of what was opened. Harmless when nothing was, and a second time."""

    def keys(self, stream: StreamSpec, page_size: int) -> Iterator["pa.RecordBatch"]:
        """The key fields of every record that the source has now: a complete listing, for `deletes: compare`.

        Pages follow each other by keyset on the key alone, so that a record that changes meanwhile is not missed.
        """
        del page_size
        raise ConfigError(f"{stream.id}: the kind '{self.kind}' cannot list all keys, which `deletes: compare` needs.")

    def pace(self) -> None:
        """Waits until the next request may go out. A kind calls it before every request to its source."""
        self._pace.wait()

    def limit(self, per_second: float | None) -> None:
        """So many requests in a second at most, from this connector object. None: as many as it likes."""
        if per_second != self._pace.per_second:
            self._pace = Pace(per_second)


class CheckpointConnector(Connector):
    """Reads a source whose progress is no value of a field, such as files or a log: its state is a text of its own.

    Every record carries in `checkpoint_field` where it is from, which is its cursor.
    """

    checkpoint_field: ClassVar[str]
    # Whether the source says what happened to a record: pages have a column OPERATION.
    has_log: ClassVar[bool] = False
    # Fields of records that `bounds` names: numbers, whose least and greatest are kept with every file of Bronze.
    bounded: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def pending(self, stream: StreamSpec, checkpoint: str | None, parallel: int) -> list[Slice]:
        """What is to be read after a checkpoint, or all there is without one; in the order that later ones win."""

    @abstractmethod
    def advanced(self, stream: StreamSpec, checkpoint: str | None, slices: Iterable[Slice]) -> str:
        """The checkpoint once these slices, which were pending after the last, have landed."""

    @abstractmethod
    def fields(self, stream: StreamSpec, slices: Iterable[Slice]) -> "pa.Schema":
        """The fields of what is in these slices. Every page of theirs has the same ones."""

    def forget(self, stream: StreamSpec) -> None:
        """The source may let go of everything that it keeps for this stream: it is not read any more."""
        del stream

    def acknowledge(self, stream: StreamSpec, checkpoint: str) -> None:
        """The checkpoint is committed, now or in an earlier run: the source may let go of what lies before it."""
        del stream, checkpoint

    def resumable(self, slices: Iterable[Slice]) -> bool:
        """Whether slices that were planned in a process that is gone can still be read."""
        del slices
        return True

    def has_news(self, stream: StreamSpec, checkpoint: str) -> bool:
        """Whether something waits to be read after a checkpoint. Asked every minute, so a kind answers without reading.

        No where there is something would let it wait; yes where there is nothing costs a run.
        """
        return bool(self.pending(stream, checkpoint, 1))

    def reachable(
        self, stream: StreamSpec, checkpoint: str | None, *, full: bool, slices: Iterable[Slice], rows: str
    ) -> str:
        """A condition in SQL (DuckDB's) on `rows`, which are Bronze: those that a run of these slices could read again.

        The run goes on from the committed checkpoint, or is full and reads everything. A row that can come again and is not
        among them lands twice.
        """
        del stream, checkpoint, full, slices, rows
        return "true"

    def bounds(
        self, stream: StreamSpec, checkpoint: str | None, *, full: bool, slices: Iterable[Slice]
    ) -> "BooleanExpression":
        """A condition (pyiceberg's) that every row of `reachable`, and every row that it compares with, satisfies.

        Files of Bronze whose bounds rule it out are not read, so that a small run does not cost more with every other.
        """
        from pyiceberg.expressions import AlwaysTrue

        del stream, checkpoint, full, slices
        return AlwaysTrue()

    def now(self, stream: StreamSpec) -> None:
        del stream

    def count(self, stream: StreamSpec, window: Window) -> None:
        del stream, window

    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        del window
        return self.pending(stream, None, parallel)


REJECTED = b"tidemark.rejected"

# A column that a page may have besides the fields of its records: what happened to each of them. "truncate" stands for all
# records that came before it, and has no key.
OPERATION = "_operation"


def rejected(texts: list[str], reason: str) -> "pa.RecordBatch":
    """A page of what could not be read as records: it goes to the quarantine with the reason."""
    import pyarrow as pa

    schema = pa.schema([("text", pa.string())], metadata={REJECTED: reason.encode()})
    return pa.record_batch([pa.array(texts, pa.string())], schema=schema)
