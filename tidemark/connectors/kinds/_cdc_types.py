"""PostgreSQL's types by their numbers, as the log names them, and the way from its texts to Arrow.

The types are those that the kind `sql` gives to the same columns.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

NUMERIC = 1700
TYPES = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", tz="UTC"),
}


def arrow_type(number: int, modifier: int) -> pa.DataType:
    """Whatever has no type of its own in the lake is text: arrays, enums, JSON, times of day, numbers without bounds."""
    if number == NUMERIC and modifier > 0:
        precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400
        if precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    return TYPES.get(number, pa.string())


def from_texts(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """PostgreSQL's own texts as values of the type. An ArrowInvalid says that one does not fit."""
    if pa.types.is_boolean(type_):
        if not pc.all(pc.is_in(texts, BOOLEANS)).as_py():
            raise pa.ArrowInvalid("neither true nor false")
        return pc.equal(texts, "t")
    if pa.types.is_binary(type_):
        return pa.array([_bytes(text) for text in texts.to_pylist()], type_)
    return texts.cast(type_)


BOOLEANS = pa.array(["t", "f", None])


def texts_of(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary()).cast(pa.string())


def _bytes(text: str | None) -> bytes | None:
    if text is None:
        return None
    if not text.startswith("\\x"):
        raise pa.ArrowInvalid("no bytes")
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        raise pa.ArrowInvalid("no bytes") from None
