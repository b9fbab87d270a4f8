"""`tidemark`: one application, its options and how it ends."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tidemark.cli.config import register as register_config
from tidemark.cli.ending import end_at_once, leave
from tidemark.errors import TidemarkError

PLUGINS = "tidemark.commands"

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="TIDEMARK_CONFIG", help="The configuration file.", show_default="./tidemark.yaml"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables for people.")]


def build() -> typer.Typer:
    """The application with the commands of every installed room."""
    app = typer.Typer(
        name="tidemark",
        help="Keeps a catalogue and a lake in step with their sources, reading only what changed.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    register_config(app)
    for plugin in sorted(entry_points(group=PLUGINS), key=lambda plugin: plugin.name):
        plugin.load()(app)
    return app


def main() -> None:
    """Exit code 0: done; 1: failed, by name; 2: wrong usage or configuration; 130: interrupted."""
    end_at_once()
    try:
        build()(standalone_mode=True)
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except TidemarkError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"{type(error).__name__}: {error}", style="red", markup=False, highlight=False
        )
        leave(error.exit_code)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; nothing was published", style="red")
        leave(130)
