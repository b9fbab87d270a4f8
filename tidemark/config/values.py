"""The kinds of value a setting may have, and the section they stand in."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo


def kebab(name: str) -> str:
    return name.replace("_", "-")


class Section(BaseModel):
    """A part of the file: kebab-case there, snake_case here; nothing unknown, nothing guessed from another type."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=kebab,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def keys(cls) -> list[str]:
        """The keys of the section; what stands in brackets is given by whoever loads the file."""
        written = [field.alias or name for name, field in cls.model_fields.items()]
        return [key for key in written if not key.startswith("(")]

    @classmethod
    def spelled(cls, word: str) -> str:
        """A word in the way this section spells its keys."""
        return kebab(word) if cls.model_config.get("alias_generator") is kebab else word


def _number(value: Any) -> Any:
    # What comes from the environment is text.
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _switch(value: Any) -> Any:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    if not isinstance(value, str | bool | int):
        raise ValueError("must be text, a whole number, or true or false.")
    return value


def _as_text(value: Any) -> Any:
    """`8` and `true` as Spark's and Java's properties are written."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, Field(min_length=1)]
# The bounds stand before the conversion: behind it, they would be missing in the JSON Schema.
Count = Annotated[int, Field(ge=1), BeforeValidator(_number)]
Hours = Annotated[int, Field(ge=0), BeforeValidator(_number)]
Percent = Annotated[int, Field(ge=0, le=100), BeforeValidator(_number)]
Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(_number)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Property = Annotated[str, BeforeValidator(_as_text)]
PlainValue = Annotated[str | bool | int, BeforeValidator(_plain)]
TextList = Annotated[tuple[Text, ...], Field(strict=False)]


def folder_of(info: ValidationInfo) -> Path:
    """The folder that relative paths are relative to: the file's, if there is one."""
    return Path((info.context or {}).get("folder", Path.cwd()))


def absolute(path: str, folder: Path) -> Path:
    """The path from the folder on; `~/` is the user's home."""
    expanded = Path(path).expanduser() if path == "~" or path.startswith("~/") else Path(path)
    # Not resolve(): a link that somebody put there on purpose stays one.
    return Path(os.path.abspath(folder / expanded))


def absolute_url(url: str, folder: Path) -> str:
    """`sqlite:///` and `duckdb:///` with an absolute path; every other URL as it is."""
    scheme, separator, rest = url.partition(":///")
    if not separator or scheme.partition("+")[0] not in ("sqlite", "duckdb"):
        return url
    path, question, options = rest.partition("?")
    if not path or path.startswith((":memory:", "file:")):
        return url
    return f"{scheme}:///{absolute(path, folder)}{question}{options}"
