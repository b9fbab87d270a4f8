"""`tidemark config check|schema`."""

import json
from typing import Annotated

import typer

from tidemark.cli.options import AsJson, ConfigFile
from tidemark.cli.output import console, print_json
from tidemark.errors import ConfigError

COLOURS = {"error": "red", "warning": "yellow"}

Variables = Annotated[
    bool,
    typer.Option(
        "--variables/--no-variables",
        help="Whether a variable that is only needed to read a source must be set. No: for machines without the secrets.",
    ),
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The configuration file.", no_args_is_help=True)
    group.command("check")(check)
    group.command("schema")(schema)
    app.add_typer(group, name="config")


def check(variables: Variables = True, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Report all that is wrong with the configuration, manifests and models: file, line, what is allowed.

    Exit code 2 if there is an error.
    """
    from tidemark.config import config_path
    from tidemark.config_check import check_project

    checked = check_project(config, variables=variables)
    if as_json:
        print_json([each.to_json() for each in checked.findings])
    for each in () if as_json else checked.findings:
        console.print(str(each), style=COLOURS[each.severity], markup=False, highlight=False, soft_wrap=True)
    if checked.has_errors:
        raise typer.Exit(ConfigError.exit_code)
    if not as_json:
        counts = f"{checked.connections} connections, {checked.connectors} connectors, {checked.models} models"
        console.print(f"{config_path(config)}: ok, {counts}", markup=False, highlight=False, soft_wrap=True)


def schema() -> None:
    """Print the configuration's JSON Schema, for editors."""
    from tidemark.config import config_schema

    typer.echo(json.dumps(config_schema(), indent=2))
