"""Where models are, and what they share."""

import re
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tidemark.config.values import Section, Text, TextList, absolute, folder_of

Scalar = str | int | float | bool
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class ModelsSettings(Section):
    """A folder of models; a plain text is the folder."""

    folder: Text
    """The folder of the models, relative to this file: every .sql file in it or below is one."""
    variables: dict[str, Scalar | tuple[Scalar, ...]] = Field(default_factory=dict)
    """Values for @name in all queries; a list is for IN @name. A model's own variables win."""
    external: TextList = ()
    """Shell patterns on names of tables that others write into the lake: models may read them."""

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @model_validator(mode="before")
    @classmethod
    def _text_is_the_folder(cls, value: Any) -> Any:
        return {"folder": value} if isinstance(value, str) else value

    @field_validator("folder")
    @classmethod
    def _folder_is_absolute(cls, folder: str, info: ValidationInfo) -> str:
        return str(absolute(folder, folder_of(info)))

    @field_validator("variables", mode="before")
    @classmethod
    def _variables_have_names_and_values(cls, given: Any) -> Any:
        return checked_variables(given)


def checked_variables(given: Any) -> Any:
    """Variables with names that a query can say and values that it can hold; a ValueError says what is wrong."""
    if not isinstance(given, dict):
        return given
    for name, value in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError("names of variables are letters, digits and '_', without the @.")
        if not all(isinstance(each, Scalar) for each in (value if isinstance(value, list | tuple) else [value])):
            raise ValueError(f"{name} must be text, a number, true or false, or a list of these.")
    return {name: _listed(value) for name, value in given.items()}
