"""What may be the name of an object, or a part of one."""

import re

from tidemark.errors import UsageError

# Names the stores keep for themselves (temporary files, the lock, probes): no key may hold one, no listing shows one.
HIDDEN = ".tidemark-"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def checked_id(value: str, what: str) -> str:
    """The id itself, if it is safe as one part of a path."""
    # `fullmatch`, because `$` would let a trailing newline through.
    if not _ID.fullmatch(value):
        raise UsageError(
            f"{what} {value[:140]!r} cannot be part of a path: use up to 128 letters, digits, '.', '_' and '-', "
            f"beginning with a letter or digit"
        )
    return value


def checked_key(key: str) -> str:
    """The key itself, if it is a relative path that stays below the root."""
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"{key!r} is no key: write it relative, like 'folder/name', without empty parts, '.' or '..'")
    if any(part.startswith(HIDDEN) for part in parts):
        raise UsageError(f"{key!r} is no key: names that begin with '{HIDDEN}' belong to the store itself")
    if not key.isprintable():
        raise UsageError(f"{key!r} is no key: it holds control characters")
    return key


def checked_folder(prefix: str) -> str:
    """The prefix with a closing slash, or '' for the whole store: a prefix means whole parts.

    As plain text, `runs/1` would also mean `runs/10`: to delete by such a prefix costs the neighbour its data.
    """
    return checked_key(prefix.removesuffix("/")) + "/" if prefix else ""


def is_hidden(key: str) -> bool:
    return any(part.startswith(HIDDEN) for part in key.split("/"))
