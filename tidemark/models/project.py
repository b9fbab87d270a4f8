"""A folder of models: every .sql file is one SELECT, with a header or a file beside it that says the rest."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import field_validator

from tidemark.config import ModelsSettings
from tidemark.config.cron import checked_cron
from tidemark.config.document import Document, parsed_document, read_document, text_of
from tidemark.config.models import checked_variables
from tidemark.errors import ConfigError
from tidemark.models import sql
from tidemark.models.place import TAKEN
from tidemark.models.spec import ModelMetadata
from tidemark.models.sql import BadSql, Reference

LEAST = "The least it says is `materialization: table`, view or incremental. What has nothing to say needs none."
ELSEWHERE = "Remove it, or name another folder under `models:`."

_HEADER = re.compile(r"\s*/\*[ \t]*---[ \t]*\n(?P<yaml>.*?)^[ \t]*---[ \t]*\*/", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"\s*/\*[ \t]*---")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,127}")
_OWNER = re.compile(r"team:[^\s]+|[^@\s<>,]+@[^@\s<>,]+")
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,63}")


class ModelHeader(ModelMetadata):
    """All that a header or a file beside a query may say."""

    name: str | None = None
    """What the model is called: schema.table. Without it, the first folder and the file's name."""
    schedule: str | None = None
    """When a run of this model starts by itself: a cron expression such as "0 * * * *". Without it, never."""

    @field_validator("schedule")
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


def read_models(settings: ModelsSettings) -> list[Model]:
    """Every model of the folder by its name; ConfigError with all that is wrong in all of them, a line each."""
    if not settings.path.is_dir():
        raise ConfigError(f"models: there is no folder {settings.path}. Make it, or name another one.")
    models: dict[str, Model] = {}
    wrong: list[str] = []
    for path in sorted(settings.path.rglob("*.sql")):
        try:
            model = read_model(path, settings)
        except ConfigError as error:
            wrong.append(str(error))
            continue
        if model.name in models:
            wrong.append(f"{path}: there is a model {model.name} already, in {models[model.name].path}. Rename one of them.")
        models.setdefault(model.name, model)
    wrong += [f"{path}: there is no {path.stem}.sql beside it." for path in _alone(settings.path)]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return [models[name] for name in sorted(models)]


def read_model(path: Path, settings: ModelsSettings) -> Model:
    """The model in one file."""
    text = text_of(path, str(path), ELSEWHERE).replace("\r\n", "\n")
    document, query = _split(path, text)
    header = ModelHeader.parse(document.data, document.file, document.lines) if document else ModelHeader()
    assert isinstance(header, ModelHeader)
    if document and document.problems:
        raise ConfigError("\n".join(problem.told(document.file) for problem in document.problems))
    name = header.name or _name_of(path, settings.path)
    try:
        bound = sql.with_variables(query, settings.variables | header.variables, _of_the_run(header))
        parsed = sql.select_of(bound)
        sql.check_columns(parsed)
        return Model(name, sql.for_spark(bound), header, path, sql.references(parsed))
    except BadSql as error:
        raise ConfigError(f"{path}:{error.line}: {error}") from None


def wrong_name(name: str) -> str | None:
    """What is wrong with a model's name, or None."""
    parts = name.split(".")
    if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):
        return "a model is called schema.table, both of lower-case letters, digits and '_'."
    return f"the schema {parts[0]} is Tidemark's own. Use another." if parts[0] in TAKEN else None


def _of_the_run(header: ModelMetadata) -> frozenset[str]:
    """Variables that have a value only while a run goes on: those of the chunks."""
    chunks = header.full_incremental_refresh
    return frozenset(each.name for each in chunks.parameters) if chunks else frozenset()


def _name_of(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).parts
    if len(parts) < 2:
        words = "it lies in no folder. The first folder is the schema; or write `name: schema.table` into its header."
        raise ConfigError(f"{path}: {words}")
    name = f"{parts[0]}.{path.stem}"
    wrong = wrong_name(name)
    if wrong:
        raise ConfigError(f"{path}: {wrong} Rename folder or file, or write `name: schema.table` into its header.")
    return name


def _split(path: Path, text: str) -> tuple[Document | None, str]:
    """What the header or the file beside says, and the query, in the lines where it stands."""
    header, beside = _HEADER.match(text), _beside(path)
    if header is None and (opening := _OPENING.match(text)):
        line = text.count("\n", 0, opening.end()) + 1
        raise ConfigError(f"{path}:{line}: the header has no end. It ends with a line `--- */`.")
    if header and beside:
        raise ConfigError(f"{path}: it has a header, and there is {beside.name} beside it. Keep one of the two.")
    if beside:
        return read_document(beside, str(beside), least=LEAST, elsewhere=ELSEWHERE), text
    if header is None:
        return None, text
    above, lines = text[: header.start("yaml")].count("\n"), text[: header.end()].count("\n")
    document = parsed_document("\n" * above + header["yaml"], str(path), least=LEAST)
    return document, "\n" * lines + text[header.end() :]


def _beside(path: Path) -> Path | None:
    found = [each for suffix in (".yaml", ".yml") if (each := path.with_suffix(suffix)).exists()]
    if len(found) > 1:
        raise ConfigError(f"{path}: there are {found[0].name} and {found[1].name} beside it. Keep one of the two.")
    return found[0] if found else None


def _alone(folder: Path) -> Iterator[Path]:
    """Files that say something of a query that is not there."""
    for suffix in ("*.yaml", "*.yml"):
        yield from (path for path in sorted(folder.rglob(suffix)) if not path.with_suffix(".sql").exists())
