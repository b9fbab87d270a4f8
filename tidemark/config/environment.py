"""`${NAME}` and `${NAME:-default}` in the values of the configuration."""

import os
import re
from collections.abc import Callable
from typing import Any

from tidemark.config.document import Document
from tidemark.config.problems import Place

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:-(.*))?", re.DOTALL)


class BadReference(ValueError):
    """A reference to the environment that is malformed, or to a variable that is not set."""


def substituted(text: str) -> str:
    """The text with the environment put in; `$${` stands for a plain `${`."""

    def value(reference: re.Match[str]) -> str:
        if reference.group() == "$${":
            return "${"
        name, default = _parts(reference)
        found = os.environ.get(name)
        if found or (found is not None and default is None):
            return found
        if default is None:
            raise BadReference(
                f"the environment variable {name} is not set. Set it, or write a default: ${{{name}:-default}}."
            )
        return default

    return _REFERENCE.sub(value, text)


def well_formed(text: str) -> None:
    """Raises if a reference is malformed; whether the variable is set does not matter."""
    for reference in _REFERENCE.finditer(text):
        if reference.group() != "$${":
            _parts(reference)


def with_environment(document: Document, later: Callable[[Place], bool]) -> Any:
    """The data with the environment put in; what cannot be is reported to the document.

    Where `later` says so, references must be well formed and stay as they are until somebody needs the value.
    """
    return _within(document, document.data, (), later)


def _within(document: Document, value: Any, place: Place, later: Callable[[Place], bool]) -> Any:
    if isinstance(value, dict):
        return {key: _within(document, item, (*place, key), later) for key, item in value.items()}
    if isinstance(value, list):
        return [_within(document, item, (*place, position), later) for position, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    try:
        if not later(place):
            return substituted(value)
        well_formed(value)
    except BadReference as error:
        document.report(place, str(error))
    return value


def _parts(reference: re.Match[str]) -> tuple[str, str | None]:
    parts = _NAME.fullmatch(reference[1] or "")
    if parts is None:
        raise BadReference(
            "'${' is not followed by a name and '}'. Write ${NAME} or ${NAME:-default}; a plain '${' is '$${'."
        )
    return parts[1], parts[3]
