"""`tidemark config check|schema`."""

import json
from typing import Annotated

import typer
from rich.console import Console


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The configuration file.", no_args_is_help=True)
    group.command("check")(check)
    group.command("schema")(schema)
    app.add_typer(group, name="config")


def check(config: Annotated[str | None, typer.Option("--config", envvar="TIDEMARK_CONFIG")] = None) -> None:
    """Read the configuration and say what is wrong with it: file, line, what is allowed."""
    from pathlib import Path

    from tidemark.config import load_config

    loaded = load_config(Path(config) if config else None)
    Console(soft_wrap=True).print(f"{loaded.path}: fine, {len(loaded.connections)} connections", highlight=False)


def schema() -> None:
    """Print the configuration's JSON Schema, for editors."""
    from tidemark.config import config_schema

    typer.echo(json.dumps(config_schema(), indent=2))
