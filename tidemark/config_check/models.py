"""What is wrong with models although they can be read: found when one is run, or here before."""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from tidemark.config import Config, ModelsSettings
from tidemark.config.origin import Origin
from tidemark.config.problems import Place, did_you_mean
from tidemark.findings import Finding
from tidemark.models import sql
from tidemark.models.graph import Project
from tidemark.models.project import Model
from tidemark.models.references import unknown_table


def model_findings(config: Config, project: Project) -> Iterator[Finding]:
    settings = config.models
    if settings is None:
        return
    if settings.path.is_dir() and not project.models and not project.broken:
        yield config.finding(("models", "folder"), f"there is no model in {settings.path}: no file in it ends in .sql.")
    for model in project.models.values():
        yield from _lost_relationships(model, project)
        yield from _lost_columns(model)
    yield from _unused_patterns(config, settings, project)


def _lost_relationships(model: Model, project: Project) -> Iterator[Finding]:
    """Checks that look for values in a table that does not exist."""
    known = {*project.models, *(each.name for each in project.broken if each.name)}
    for position, check in enumerate(model.metadata.checks):
        if check.relationships is not None:
            wrong = unknown_table(check.relationships.to.removeprefix("lake."), known, project.tables)
            if wrong:
                yield _written(model).finding(("checks", position, "relationships", "to"), wrong)


def _lost_columns(model: Model) -> Iterator[Finding]:
    """Columns that a strategy needs and the query does not have; a star may have any."""
    incremental, columns = model.metadata.incremental, sql.columns_of(model.sql)
    if incremental is None or columns is None:
        return
    options, place = incremental.options, ("incremental", incremental.strategy)
    needed: list[tuple[Place, str]] = [((*place, "unique_key"), column) for column in options.key_columns]
    if options.filter_column:
        needed.append(((*place, "filter_column"), options.filter_column))
    for where, column in needed:
        if column.lower() not in {each.lower() for each in columns}:
            words = f"the query has no column '{column}'.{did_you_mean(column, columns)} Columns: {', '.join(columns)}."
            yield _written(model).finding(where, words)


def _unused_patterns(config: Config, settings: ModelsSettings, project: Project) -> Iterator[Finding]:
    read = {name for model in project.models.values() for name in model.references}
    for position, pattern in enumerate(settings.external):
        if not project.broken and not any(fnmatchcase(name, pattern) for name in read):
            place = ("models", "external", position)
            yield replace(config.finding(place, "no model reads a table that matches this pattern."), severity="warning")


def _written(model: Model) -> Origin:
    return model.origin or Origin(str(model.path))
