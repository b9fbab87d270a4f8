"""What pydantic found, in the words of the file: key, line, what is allowed, nearest match."""

import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidemark.config.document import Document
from tidemark.config.problems import Place, Problem, did_you_mean
from tidemark.config.values import Section

# pydantic's name for it → our words. A value is never repeated: it may be a secret.
WORDS = {
    "bool_type": "must be true or false.",
    "dict_type": "must be `key: value` lines, indented below it.",
    "finite_number": "must be a number.",
    "float_type": "must be a number.",
    "greater_than": "must be more than {gt}.",
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


def problems_of(error: ValidationError, document: Document, root: type[Section]) -> Iterator[Problem]:
    """One problem for each thing that pydantic found in a file of the root's keys and that is not reported yet."""
    reported = {problem.place for problem in document.problems if problem.place}
    reported |= {place[:-1] for place in reported if isinstance(place[-1], int)}  # a bad entry makes a bad list
    everything = error.errors(include_url=False, include_input=True)
    for found in everything:
        place = _written(found, document)
        if not any(place[: len(outer)] == outer for outer in reported) and not _follows(found, everything):
            yield Problem(document.line(place), place, _words(found, place, root))


def _follows(found: ErrorDetails, everything: list[ErrorDetails]) -> bool:
    """Whether a list is called too short only because its entries are wrong, which is reported for each."""
    place = found["loc"]
    return found["type"] == "too_short" and any(
        other["loc"][: len(place)] == place and len(other["loc"]) > len(place) for other in everything
    )


def _written(found: ErrorDetails, document: Document) -> Place:
    """The place as the file knows it: pydantic adds names of types behind it."""
    place = found["loc"]
    if found["type"] == "missing":
        return place
    while len(place) > 1 and place not in document.lines:
        place = place[:-1]
    return place


def _section(place: Place, root: type[Section]) -> type[Section]:
    """The section whose keys stand at the place. Names and positions in between do not lead to another one."""
    section = root
    for part in place:
        fields = {field.alias or name: field for name, field in section.model_fields.items()}
        if part in fields:
            section = next(_sections_in(fields[str(part)].annotation), section)
    return section


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    """The sections that a type is made of: `tuple[Stream, ...]` is of streams."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)


def _words(found: ErrorDetails, place: Place, root: type[Section]) -> str:
    kind, context = found["type"], found.get("ctx", {})
    if kind == "missing":
        return f"this key is missing. {_purpose(place, root)}"
    if kind == "extra_forbidden":
        section = _section(place[:-1], root)
        near = did_you_mean(section.spelled(str(place[-1])), section.keys())
        return f"unknown key.{near} Allowed: {', '.join(section.keys())}."
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        return f"there is no such choice.{did_you_mean(str(found['input']), allowed)} Allowed: {', '.join(allowed)}."
    words = WORDS[kind].format(**context) if kind in WORDS else f"{found['msg']}."
    return words + _quote_hint(kind, found["input"])


def _purpose(place: Place, root: type[Section]) -> str:
    for name, field in _section(place[:-1], root).model_fields.items():
        if (field.alias or name) == place[-1]:
            return field.description or ""
    return ""


def _quote_hint(kind: str, value: Any) -> str:
    return " Put it in quotes." if kind == "string_type" and isinstance(value, bool | int | float) else ""
