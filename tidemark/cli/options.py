"""Options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="TIDEMARK_CONFIG", help="The configuration file.", show_default="./tidemark.yaml"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables for people.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many, newest first.")]
Full = Annotated[bool, typer.Option("--full", help="Read everything, whatever the mark says.")]
Reason = Annotated[str, typer.Option("--reason", help="Why. It stays in the history of the mark.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="An id, the beginning of one, or latest, latest~1, …")]
