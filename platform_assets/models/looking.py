"""`tidemark model list|lineage`: what the project says, without Spark."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_code.models.system import MODEL
from tidemark.cli.completing import subject_names
from tidemark.cli.options import AsJson, ConfigFile
from tidemark.cli.output import print_json, say
from tidemark.cli.tables import print_table
from tidemark.config import Config, load_config
from tidemark.config.problems import did_you_mean
from tidemark.errors import ConfigError, LakeError, UsageError

if TYPE_CHECKING:
    from tidemark.models.graph import Project
    from tidemark.models.lineage import Lineage

ModelName = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model: schema.table.", autocompletion=subject_names(MODEL))
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL…]",
        help="Models: schema.table, +a with all that it reads, a+ with all that read it, silver.*.",
        autocompletion=subject_names(MODEL),
    ),
]


def load_project(config: Config) -> "Project":
    """The models; what reads them is imported when it is needed, and not by `tidemark --help`."""
    from tidemark.models.graph import load_project as load

    return load(config)


def model_list(names: Names = None, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """The models in the order they run, how each is kept, and what it reads. Exit code 2 if one is broken."""
    project = load_project(load_config(config))
    chosen, broken = project.selected(names or ()), project.broken_among(names or ())
    rows = [
        {
            "model": model.name,
            "materialization": model.metadata.materialization,
            "strategy": model.metadata.incremental.strategy if model.metadata.incremental else None,
            "partitions": model.metadata.partitions.by if model.metadata.partitions else None,
            "on_schema_change": model.policy,
            "reads": list(model.references),
            "checks": [check.name for check in model.metadata.checks],
            "owner": model.metadata.owner,
            "description": model.metadata.description,
            "file": str(model.path),
        }
        for model in chosen
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            "models",
            ["model", "kept as", "on schema change", "reads", "checks"],
            [
                [
                    row["model"],
                    kept_as(row),
                    row["on_schema_change"],
                    "\n".join(model.references),
                    len(model.metadata.checks),
                ]
                for row, model in zip(rows, chosen, strict=True)
            ],
        )
    elif not broken:
        say("no models: write `models: FOLDER` into the configuration")
    for each in broken:
        say(f"broken: {each.error()}", "error")
    if broken:
        raise typer.Exit(ConfigError.exit_code)


def kept_as(row: Mapping[str, Any]) -> str:
    windows = f"by {row['partitions']}" if row["partitions"] else None
    return ", ".join(each for each in (row["materialization"], row["strategy"], windows) if each)


def model_lineage(
    name: ModelName,
    column: Annotated[str | None, typer.Argument(metavar="[COLUMN]", help="Only this column.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Where the columns of a model come from, one step back and to the very beginning, and who reads them."""
    from spark_code.platform import Platform

    loaded = load_config(config)
    project = load_project(loaded)
    project.find(name)
    lineages = project.lineages(known=stored(project, Platform(loaded)))
    columns = chosen(name, lineages[name], column)
    rows = [row_of(lineages, name, each) for each in columns]
    if as_json:
        print_json({"model": name, "columns": rows})
        return
    print_table(
        name,
        ["column", "comes from", "in the end from", "read by"],
        [[row["column"], *(lines_of(row[key]) for key in ("from", "origins", "read_by"))] for row in rows],
    )
    unknown = [row["column"] for row in rows if not row["known"]]
    if unknown:
        say(f"not all of it is known: {', '.join(unknown)}", "warning")


def stored(project: "Project", platform: Any) -> Mapping[str, Any]:
    """The columns in the lake; a lake that is away leaves what the files say."""
    try:
        return project.stored(platform.lake.reader)
    except LakeError as error:
        say(f"the lake cannot be read, so only the files are used: {error}", "warning")
        return {}


def chosen(model: str, lineage: "Lineage", column: str | None) -> list[str]:
    if column is None:
        return list(lineage.columns)
    found = [name for name in lineage.columns if name.lower() == column.lower()]
    if not found:
        known = list(lineage.columns)
        raise UsageError(f"{model} has no column '{column}'.{did_you_mean(column, known)} Columns: {', '.join(known)}.")
    return found


def row_of(lineages: Mapping[str, "Lineage"], model: str, column: str) -> dict[str, Any]:
    from tidemark.models.lineage import origins, readers

    lineage = lineages[model]
    return {
        "column": column,
        "from": plain(lineage.columns[column]),
        "origins": plain(origins(lineages, model, column) if lineage.columns[column] else ()),
        "read_by": plain(readers(lineages, model, column)),
        "known": column not in lineage.unknown,
    }


def plain(sources: Any) -> list[dict[str, str]]:
    return [{"table": each.table, "column": each.column} for each in sources]


def lines_of(sources: list[dict[str, str]]) -> str:
    from tidemark.models.lineage import Source

    return "\n".join(str(Source(**each)) for each in sources)
