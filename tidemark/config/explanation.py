"""What pydantic found, in the words of the file: key, line, what is allowed, nearest match."""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidemark.config.connection import Connection
from tidemark.config.document import Document
from tidemark.config.model import Config, EmailSettings, SparkSettings, StoreSettings
from tidemark.config.problems import Place, Problem, did_you_mean
from tidemark.config.values import Section, kebab

SECTIONS: dict[str, type[Section]] = {
    "store": StoreSettings,
    "spark": SparkSettings,
    "connections": Connection,
    "email": EmailSettings,
}

# pydantic's name for it → our words. A value is never repeated: it may be a secret.
WORDS = {
    "bool_type": "must be true or false.",
    "dict_type": "must be `key: value` lines, indented below it.",
    "greater_than_equal": "must be at least {ge}.",
    "int_type": "must be a whole number.",
    "less_than_equal": "must be at most {le}.",
    "model_type": "must be `key: value` lines, indented below it.",
    "path_type": "must be a path.",
    "string_too_short": "must not be empty.",
    "string_type": "must be text.",
    "too_short": "must have at least one entry.",
    "tuple_type": 'must be a list: ["…"].',
    "value_error": "{error}",
}


def problems_of(error: ValidationError, document: Document) -> Iterator[Problem]:
    """One problem for each thing that pydantic found and nobody has told yet."""
    told = {problem.place for problem in document.problems if problem.place}
    told |= {place[:-1] for place in told if isinstance(place[-1], int)}  # a bad entry makes a bad list
    for found in error.errors(include_url=False, include_input=True):
        place = _written(found, document)
        if not any(place[: len(outer)] == outer for outer in told):
            yield Problem(document.line(place), place, _words(found, place))


def _written(found: ErrorDetails, document: Document) -> Place:
    """The place as the file knows it: pydantic adds names of types behind it."""
    place = found["loc"]
    if found["type"] == "missing":
        return place
    while len(place) > 1 and place not in document.lines:
        place = place[:-1]
    return place


def _section(place: Place) -> type[Section]:
    return SECTIONS.get(str(place[0]), Config) if place else Config


def _words(found: ErrorDetails, place: Place) -> str:
    kind, context = found["type"], found.get("ctx", {})
    if kind == "missing":
        return f"this key is missing. {_purpose(place)}"
    if kind == "extra_forbidden":
        keys = _section(place[:-1]).keys()
        return f"unknown key.{did_you_mean(kebab(str(place[-1])), keys)} Allowed: {', '.join(keys)}."
    words = WORDS[kind].format(**context) if kind in WORDS else f"{found['msg']}."
    return words + _quote_hint(kind, found["input"])


def _purpose(place: Place) -> str:
    for field in _section(place[:-1]).model_fields.values():
        if field.alias == place[-1]:
            return field.description or ""
    return ""


def _quote_hint(kind: str, value: Any) -> str:
    return " Put it in quotes." if kind == "string_type" and isinstance(value, bool | int | float) else ""
