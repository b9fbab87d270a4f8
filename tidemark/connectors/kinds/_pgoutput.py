"""Messages of PostgreSQL's `pgoutput`, protocol version 1: bytes to what they mean. Pure, and quick.

Values stay the text that PostgreSQL wrote, as bytes. Integers are big-endian, names end with a zero byte.
"""

from collections.abc import Callable
from enum import Enum
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias


class NotPgoutput(ValueError):
    """The bytes are no message of this protocol, or not all of one."""


class Toast(Enum):
    """A large value that an update left alone: PostgreSQL does not write it to the log again."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Toast.UNCHANGED
Value: TypeAlias = bytes | Toast | None


class Begin(NamedTuple):
    """A transaction. They come in the order of their commits; `commit` is where in the log that is."""

    commit: int


class Commit(NamedTuple):
    commit: int


class RelationColumn(NamedTuple):
    """`type` is PostgreSQL's number for it, `modifier` its length or precision, or -1."""

    name: str
    type: int
    modifier: int
    in_key: bool


class Relation(NamedTuple):
    """A table as it was when what follows was written. `identity`: d(efault), i(ndex), f(ull), n(othing)."""

    table: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    table: int
    new: list[Value]


class Update(NamedTuple):
    """`old` has the values of the key if the key changed, all of them if `whole`, and else is not there."""

    table: int
    new: list[Value]
    old: list[Value] | None
    whole: bool


class Delete(NamedTuple):
    """`old` has at least the values of the key."""

    table: int
    old: list[Value]


class Truncate(NamedTuple):
    tables: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | Insert | Update | Delete | Truncate

_NUMBER = Struct(">I")
_length = _NUMBER.unpack_from
_LONG = Struct(">Q")
_COUNT = Struct(">H")
_COLUMN = Struct(">Ii")
_TEXT, _NULL, _UNCHANGED = b"tnu"
_NEW, _KEY, _OLD = b"NKO"


def decoded(message: bytes) -> Message | None:
    """What a message says. None for those that say nothing of records: types, origins."""
    try:
        return _READERS[message[0]](message)
    except (IndexError, KeyError, StructError, UnicodeDecodeError):
        raise NotPgoutput("a message of the log is none of pgoutput's, or is cut off") from None


def _begin(message: bytes) -> Begin:
    return Begin(_LONG.unpack_from(message, 1)[0])


def _commit(message: bytes) -> Commit:
    return Commit(_LONG.unpack_from(message, 2)[0])


def _relation(message: bytes) -> Relation:
    (table,) = _NUMBER.unpack_from(message, 1)
    schema, place = _name(message, 5)
    name, place = _name(message, place)
    identity = chr(message[place])
    (count,) = _COUNT.unpack_from(message, place + 1)
    place += 3
    columns = []
    for _ in range(count):
        in_key = bool(message[place] & 1)
        column, place = _name(message, place + 1)
        number, modifier = _COLUMN.unpack_from(message, place)
        columns.append(RelationColumn(column, number, modifier, in_key))
        place += 8
    _ended(message, place)
    return Relation(table, schema, name, identity, tuple(columns))


def _insert(message: bytes) -> Insert:
    new, place = _values(message, 6)
    _ended(message, place)
    return Insert(_NUMBER.unpack_from(message, 1)[0], new)


def _update(message: bytes) -> Update:
    kind, old, place = message[5], None, 6
    if kind != _NEW:
        if kind not in (_KEY, _OLD):
            raise NotPgoutput("an update of the log has a part that pgoutput does not know")
        old, place = _values(message, place)
        place += 1
    new, place = _values(message, place)
    _ended(message, place)
    return Update(_NUMBER.unpack_from(message, 1)[0], new, old, kind == _OLD)


def _delete(message: bytes) -> Delete:
    old, place = _values(message, 6)
    _ended(message, place)
    return Delete(_NUMBER.unpack_from(message, 1)[0], old)


def _truncate(message: bytes) -> Truncate:
    (count,) = _NUMBER.unpack_from(message, 1)
    return Truncate(tuple(_NUMBER.unpack_from(message, 6 + 4 * place)[0] for place in range(count)))


def _nothing(message: bytes) -> None:
    del message


def _name(message: bytes, place: int) -> tuple[str, int]:
    end = message.find(b"\0", place)
    if end < 0:
        raise NotPgoutput("a name in the log has no end")
    return message[place:end].decode(), end + 1


def _values(message: bytes, place: int) -> tuple[list[Value], int]:
    """The values of a row and where it ends. This is where the time goes."""
    count = message[place] << 8 | message[place + 1]
    place += 2
    values: list[Value] = []
    for _ in range(count):
        kind = message[place]
        if kind == _TEXT:
            start = place + 5
            place = start + _length(message, place + 1)[0]
            values.append(message[start:place])
        elif kind == _NULL:
            values.append(None)
            place += 1
        elif kind == _UNCHANGED:
            values.append(UNCHANGED)
            place += 1
        else:
            raise NotPgoutput("a value in the log is of a form that was not requested")
    return values, place


def _ended(message: bytes, place: int) -> None:
    if place != len(message):
        raise NotPgoutput("a message of the log is longer or shorter than it says")


_READERS: dict[int, Callable[[bytes], Message | None]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("R"): _relation,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("Y"): _nothing,
    ord("O"): _nothing,
}
