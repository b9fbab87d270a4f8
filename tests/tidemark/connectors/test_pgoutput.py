"""Messages of pgoutput, byte by byte."""

import struct

import pytest

from tidemark.connectors.kinds._pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    NotPgoutput,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    Value,
    decoded,
)

pytestmark = pytest.mark.fast

TABLE = struct.pack(">I", 16390)


def row(*values: Value) -> bytes:
    def written(value: Value) -> bytes:
        if value is None:
            return b"n"
        return b"u" if value is UNCHANGED else b"t" + struct.pack(">I", len(value)) + value

    return struct.pack(">H", len(values)) + b"".join(map(written, values))


RELATION = (
    b"R" + TABLE + b"public\0orders\0d" + struct.pack(">H", 2)
    + b"\1id\0" + struct.pack(">Ii", 20, -1)
    + b"\0pri\xc3\xa7e\0" + struct.pack(">Ii", 1700, 655366)
)  # fmt: skip


def test_a_transaction_is_known_by_where_it_commits() -> None:
    assert decoded(b"B" + struct.pack(">QqI", 0x1_01A0_0F38, 5, 700)) == Begin(0x1_01A0_0F38)
    assert decoded(b"C\0" + struct.pack(">QQq", 0x1A00F38, 0x1A00F68, 5)) == Commit(0x1A00F38)


def test_a_relation_has_its_columns_and_their_part_in_the_key() -> None:
    columns = (RelationColumn("id", 20, -1, True), RelationColumn("priçe", 1700, 655366, False))
    assert decoded(RELATION) == Relation(16390, "public", "orders", "d", columns)


def test_an_insert_has_texts_and_nulls() -> None:
    assert decoded(b"I" + TABLE + b"N" + row(b"1", None, b"")) == Insert(16390, [b"1", None, b""])


def test_an_update_may_have_the_old_key_the_old_row_or_neither() -> None:
    new = [b"2", UNCHANGED]
    assert decoded(b"U" + TABLE + b"N" + row(*new)) == Update(16390, new, None, False)
    assert decoded(b"U" + TABLE + b"K" + row(b"1", None) + b"N" + row(*new)) == Update(16390, new, [b"1", None], False)
    assert decoded(b"U" + TABLE + b"O" + row(b"1", b"x") + b"N" + row(*new)) == Update(16390, new, [b"1", b"x"], True)


@pytest.mark.parametrize("form", [b"K", b"O"])
def test_a_delete_has_the_old_key_or_the_old_row(form: bytes) -> None:
    assert decoded(b"D" + TABLE + form + row(b"1", None)) == Delete(16390, [b"1", None])


def test_a_truncation_may_be_of_several_tables() -> None:
    assert decoded(b"T" + struct.pack(">IBII", 2, 1, 16390, 16400)) == Truncate((16390, 16400))


def test_types_and_origins_tell_nothing_of_records() -> None:
    assert decoded(b"Y" + TABLE + b"public\0mood\0") is None
    assert decoded(b"O" + struct.pack(">Q", 5) + b"elsewhere\0") is None


def test_a_message_that_is_cut_off_anywhere_is_refused() -> None:
    for message in (RELATION, b"I" + TABLE + b"N" + row(b"12", b"x"), b"U" + TABLE + b"K" + row(b"1") + b"N" + row(b"2")):
        for end in range(len(message)):
            with pytest.raises(NotPgoutput):
                decoded(message[:end])


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"?",
        b"S" + TABLE,
        b"I" + TABLE + b"N" + row(b"1") + b"!",
        b"I" + TABLE + b"N\0\1b\0\0\0\1x",
        b"U" + TABLE + b"X\0\0",
    ],
)
def test_what_is_no_message_of_the_protocol_is_refused(message: bytes) -> None:
    with pytest.raises(NotPgoutput):
        decoded(message)
