"""How a command says what went wrong: by name, a sentence for people or a JSON object for programs."""

import logging
import os
from traceback import extract_tb, print_exception
from typing import Any

import typer

from tidemark.cli.output import print_json, say
from tidemark.errors import Interrupted, TidemarkError, UnexpectedFailure, UsageError
from tidemark.terminal import standard_error

VERBOSE = "TIDEMARK_VERBOSE"
INTERRUPTED = Interrupted("nothing more is published. The next run recovers automatically.")


def say_error(error: TidemarkError, *, as_json: bool) -> int:
    """By name: for programs on standard output, for people on standard error. Returns the exit code."""
    if as_json:
        print_json(as_document(error))
    else:
        say(f"{type(error).__name__}: {error}", "error")
    return error.exit_code


def as_document(error: TidemarkError) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code}


def say_wrong_usage(wrong: typer.TyperException, *, as_json: bool) -> int:
    """What the arguments lack, and which help says more. Without any arguments the help itself was shown."""
    context = getattr(wrong, "ctx", None)
    if type(wrong).__name__ == "NoArgsIsHelpError":
        return UsageError.exit_code
    words = " ".join(wrong.format_message().split())
    words += "" if words.endswith((".", "?")) else "."
    advice = f" `{context.command_path} --help` says more." if context else ""
    return say_error(UsageError(f"{words}{advice}"), as_json=as_json)


def unexpected(error: Exception) -> TidemarkError:
    """An error that has no name of ours. Its own words may quote rows: they are shown only to who asks for them."""
    if os.environ.get(VERBOSE):
        print_exception(error, file=standard_error())
    frames = extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    advice = "" if os.environ.get(VERBOSE) else " `tidemark -v …` shows the details."
    return UnexpectedFailure(f"{type(error).__name__}{place}, which Tidemark has no name for.{advice}")


class SaidWarnings(logging.Handler):
    """Warnings of Tidemark itself, as sentences."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"warning: {record.getMessage()}", "warning")


def say_warnings() -> None:
    """What our own packages warn of reaches whoever started the command; what others log does not."""
    from tidemark.observe.packages import OURS

    for name in OURS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, SaidWarnings) for each in logger.handlers):
            logger.addHandler(SaidWarnings(logging.WARNING))
