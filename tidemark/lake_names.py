"""Names in the lake that are needed where nothing of it is read, so that commands that only look start quickly."""

import re

import xxhash

CATALOG = "lake"
MAIN = "main"

# Keys of the summary of every snapshot that a run stages.
RUN_ID = "tidemark.run-id"
MARKER = "tidemark.marker"

# The namespace of shadow tables.
SHADOWS = "tidemark_shadow"
# What the folder of a shadow table has behind that of its table.
SHADOW = "__shadow"


def branch_of(run_id: str) -> str:
    """The branch on which a run stages."""
    return "run_" + re.sub(r"[^A-Za-z0-9]", "_", run_id)


def shadow_name(table: str, run_id: str) -> str:
    """Where a run registers its shadow of a table: a namespace of its own, so that no table of anybody else is taken for
    one, and a name of its own, so that a process that was stopped and woken writes where nobody looks."""
    return f"{SHADOWS}.{branch_of(run_id)}__{_shadowed(table)}"


def is_shadow(name: str, table: str) -> bool:
    """Whether a table of that namespace, without it, is a shadow of this one, whichever run made it."""
    return name.removeprefix(f"{SHADOWS}.").endswith(_shadowed(table))


def _shadowed(table: str) -> str:
    return f"{re.sub(r'[^a-z0-9]', '_', table.lower())}_{xxhash.xxh32_hexdigest(table.encode())}"
