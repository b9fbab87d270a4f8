"""Qualified names: unambiguous whatever a source calls its tables."""

import xxhash

TENANT = "default"


def escaped(part: str) -> str:
    """One part of a qualified name. Only the separator and the escape sign itself are written otherwise."""
    return part.replace("%", "%25").replace("/", "%2F")


def qualified_name(app: str, connection_id: str, *parts: str) -> str:
    """`default/{app}/{connection}/{database}/{schema}/{table}/{column}`, as deep as there are parts."""
    return "/".join([TENANT, app, connection_id, *map(escaped, parts)])


def unit_key(name: str) -> int:
    """A number that sorts and prunes better than the name: the same as Spark's `xxhash64(name)`."""
    unsigned = xxhash.xxh64_intdigest(name.encode(), seed=42)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


def parts_of(name: str) -> tuple[str, ...]:
    """The parts behind app and connection, as the source spells them."""
    return tuple(part.replace("%2F", "/").replace("%25", "%") for part in name.split("/")[3:])


def parent_of(name: str) -> str:
    """The qualified name of a table's schema, or of a schema's database."""
    return name.rpartition("/")[0]
