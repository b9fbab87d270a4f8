"""`tidemark`: one application, its options and how it ends."""

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Annotated

import typer

from tidemark.cli.config import register as register_config
from tidemark.cli.ending import end_at_once, leave
from tidemark.cli.failing import INTERRUPTED, VERBOSE, say_error, say_warnings, say_wrong_usage, unexpected
from tidemark.cli.options import AsJson as AsJson
from tidemark.cli.options import ConfigFile as ConfigFile
from tidemark.cli.output import Printed
from tidemark.cli.status import status
from tidemark.errors import Interrupted, TidemarkError
from tidemark.terminal import hold, is_held, silence_others

PLUGINS = "tidemark.commands"


class LogForm(StrEnum):
    TEXT = "text"
    JSON = "json"


LogOption = Annotated[
    LogForm | None,
    typer.Option("--log", envvar="TIDEMARK_LOG", help="json: one JSON object a line on stderr.", show_default="text"),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", envvar=VERBOSE, help="Show what Spark, Java and Dagster write, and tracebacks."),
]


def print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tidemark {version('tidemark')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and end.")
]


def choose_output(context: typer.Context, log: LogOption = None, verbose: Verbose = False, _: Version = False) -> None:
    # Into the environment, where `tidemark.observe` and the processes that a command starts find it.
    if log:
        os.environ["TIDEMARK_LOG"] = log
    if verbose:
        os.environ[VERBOSE] = "1"
    else:
        silence_others()
    if (log or os.environ.get("TIDEMARK_LOG")) == LogForm.JSON:
        from tidemark import observe

        context.call_on_close(observe.start())
    elif is_held() and not verbose:
        say_warnings()


def wants_json_log(arguments: Sequence[str]) -> bool:
    """Whether errors are to be lines of JSON, known before the arguments are understood: they may be wrong."""
    given = " ".join(arguments)
    return os.environ.get("TIDEMARK_LOG") == "json" or "--log json" in given or "--log=json" in given


def build() -> typer.Typer:
    """The application with the commands of every installed package."""
    app = typer.Typer(
        name="tidemark",
        help="Keeps a catalogue and a lake up to date with their sources, reading only what changed.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(choose_output)
    app.command()(status)
    for plugin in sorted(entry_points(group=PLUGINS), key=lambda plugin: plugin.name):
        plugin.load()(app)
    register_config(app)
    return app


def main() -> None:
    """Exit code 0: done; 1: failed, by name; 2: wrong usage or configuration; 130: interrupted."""
    end_at_once()
    hold()
    if wants_json_log(sys.argv):
        os.environ["TIDEMARK_LOG"] = "json"
    leave(exit_code(as_json="--json" in sys.argv))


def exit_code(*, as_json: bool) -> int:
    """Runs the command that the arguments name; whatever ends it is said by name."""
    try:
        ended = build()(standalone_mode=False, prog_name="tidemark")
        code = ended if isinstance(ended, int) else 0
        return code if code != Interrupted.exit_code or Printed.json else say_error(INTERRUPTED, as_json=as_json)
    except SystemExit as ended:  # a completion of the shell, or a reader that has gone
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except TidemarkError as error:
        return say_error(error, as_json=as_json)
    except typer.TyperException as wrong:
        return say_wrong_usage(wrong, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        return say_error(INTERRUPTED, as_json=as_json)
    except Exception as error:
        return say_error(unexpected(error), as_json=as_json)
