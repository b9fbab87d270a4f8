"""A model: one SELECT, and what a header or a file next to it says of it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import field_validator

from tidemark.config.cron import checked_cron
from tidemark.config.models import checked_variables
from tidemark.config.origin import Origin
from tidemark.lake_names import SHADOW
from tidemark.models.place import TAKEN
from tidemark.models.spec import ModelMetadata
from tidemark.models.sql import Reference

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,127}")
_OWNER = re.compile(r"team:[^\s]+|[^@\s<>,]+@[^@\s<>,]+")
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,63}")


class ModelHeader(ModelMetadata):
    """All that a header or a file next to a query may say."""

    name: str | None = None
    """What the model is called: schema.table. Without it, the first folder and the file's name."""
    schedule: str | None = None
    """When a run of this model starts by itself: a cron expression such as "0 * * * *". Without it, never."""

    upkeep: str = "0 3 * * 0"
    """When the table is compacted and old files removed: a cron expression."""

    @field_validator("schedule", "upkeep")
    @classmethod
    def _schedule_is_cron(cls, schedule: str | None) -> str | None:
        return None if schedule is None else checked_cron(schedule)

    @field_validator("name")
    @classmethod
    def _name_is_of_two_parts(cls, name: str | None) -> str | None:
        wrong = None if name is None else wrong_name(name)
        if wrong:
            raise ValueError(wrong)
        return name

    @field_validator("owner")
    @classmethod
    def _owner_is_a_team_or_an_address(cls, owner: str | None) -> str | None:
        if owner is not None and not _OWNER.fullmatch(owner):
            raise ValueError("must be a team, team:name, or a mail address, name@host.")
        return owner

    @field_validator("tags")
    @classmethod
    def _tags_are_words(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_TAG.fullmatch, tags)):
            raise ValueError("must be words of up to 63 letters, digits, '.', '_' and '-'.")
        return tags

    @field_validator("variables", mode="before")
    @classmethod
    def _variables_have_names_and_values(cls, given: Any) -> Any:
        return checked_variables(given)

    @field_validator("checks")
    @classmethod
    def _checks_have_names_of_their_own(cls, checks: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [check.name for check in checks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two are called {', '.join(twice)}. Give one of them a name.")
        return checks


@dataclass(frozen=True)
class Model:
    """A query, and what is said of it."""

    name: str
    """schema.table"""
    sql: str
    """The query as Spark gets it."""
    metadata: ModelHeader
    path: Path
    found: tuple[Reference, ...]
    """The tables that it reads, with their lines."""
    origin: Origin | None = None
    """Where its header is written."""

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.found)

    @property
    def schema(self) -> str:
        return self.name.partition(".")[0]

    @property
    def table(self) -> str:
        return self.name.partition(".")[2]

    @property
    def policy(self) -> str | None:
        """What a new schema may do to it; None if there is nothing to keep."""
        return self.metadata.incremental.on_schema_change if self.metadata.incremental else None


def wrong_name(name: str) -> str | None:
    """What is wrong with a model's name, or None."""
    parts = name.split(".")
    if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):
        return "a model is called schema.table, both of lower-case letters, digits and '_'."
    if parts[1].endswith(SHADOW):
        return f"the folder of {name} would be that of the rebuilds of {name.removesuffix(SHADOW)}. Use another name."
    return f"the schema {parts[0]} is Tidemark's own. Use another." if parts[0] in TAKEN else None
