"""The types that a manifest may give to the fields of a fixed schema, and what they are in Arrow."""

import re
from functools import cache
from typing import Any

from tidemark.config.problems import did_you_mean

NAMES = ("string", "integer", "bigint", "float", "double", "boolean", "date", "time", "timestamp", "timestamp_ntz", "binary")
ALLOWED = f"Allowed: {', '.join(NAMES)}, decimal(precision, scale)."

_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)")


def checked_type(text: str) -> str:
    """The name of the type in lower case; a ValueError lists the types there are."""
    name = text.strip().lower()
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError("a decimal has a precision from 1 to 38, and a scale that is not greater.")
        return f"decimal({precision},{scale})"
    if name not in NAMES:
        raise ValueError(f"there is no such type.{did_you_mean(name, (*NAMES, 'decimal'))} {ALLOWED}")
    return name


@cache
def arrow_type(text: str) -> Any:
    """The Arrow type of a name. `timestamp` is an instant, `timestamp_ntz` what a clock without zone shows."""
    import pyarrow as pa

    name = checked_type(text)
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return {
        "string": pa.string(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "time": pa.string(),  # Spark has no type for it
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "binary": pa.binary(),
    }[name]
