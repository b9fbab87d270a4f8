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

    To take every module apart takes time, and DuckDB then tells on stderr of every object that another module still holds.
    """
    atexit.register(_over)


def leave(code: int) -> NoReturn:
    Ending.code = code
    sys.exit(code)


def _over() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # whoever read it may have gone, as `head` does
            stream.flush()
    os._exit(Ending.code)
