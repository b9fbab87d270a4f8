"""How a process at the shell ends: what others registered is done, and then it is over."""

import atexit
import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


class Ending:
    """The exit code; that of an error until somebody says otherwise."""

    code = 1


def end_at_once() -> None:
    """To be called first of all: what is registered last is done first.

    To take every module apart takes time, and DuckDB then reports on stderr every object that another module still holds.
    """
    atexit.register(_over)


def leave(code: int) -> NoReturn:
    Ending.code = code
    sys.exit(code)


def _over() -> None:
    logging.shutdown()
    with suppress(OSError, AttributeError):  # it was closed, or whoever read it has gone
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except (BrokenPipeError, AttributeError):
        pass  # whoever read it has gone, as `head` does
    except OSError:
        Ending.code = Ending.code or 1  # a disk is full: the result did not arrive
    os._exit(Ending.code)
