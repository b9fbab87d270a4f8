"""The streams of whoever started the command, held from before Spark, Java and Dagster write to theirs."""

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Held:
    """Standard error as it was when the command began; None: it is still in its place."""

    stderr: TextIO | None = None


def standard_error() -> TextIO:
    """Where people, or programs that read logs, get what Tidemark itself has to say."""
    return Held.stderr or sys.stderr


def hold() -> None:
    """Keeps standard error for Tidemark alone: Dagster replaces descriptor 2 while a run executes."""
    Held.stderr = _copy(2, sys.stderr, Forgiving)


def is_held() -> bool:
    """Whether this process is a command of its own, and not a test that calls one."""
    return Held.stderr is not None


def silence_others() -> None:
    """From now on nobody sees what libraries and the processes they start write to descriptors 1 and 2.

    Tidemark's own results and messages still arrive. Does nothing unless standard error is held, as in tests.
    """
    if Held.stderr is None:
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    sys.stdout = _copy(1, sys.stdout)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def give_back() -> None:
    """Puts both streams back into their places, for a program that takes over this process."""
    if Held.stderr is None:
        return
    sys.stdout.flush()
    if sys.stdout.fileno() != 1:
        os.dup2(sys.stdout.fileno(), 1)
    os.dup2(Held.stderr.fileno(), 2)


class Forgiving(io.FileIO):
    """Standard error whose reader has gone, or whose disk is full, ends no run: its words are lost, and that is all."""

    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _copy(descriptor: int, like: TextIO | None, kind: type[io.FileIO] = io.FileIO) -> TextIO:
    encoding = getattr(like, "encoding", None) or "utf-8"
    errors = getattr(like, "errors", None) or "replace"
    try:
        own = os.dup(descriptor)
    except OSError:  # it was closed before we began
        own = os.open(os.devnull, os.O_WRONLY)
    # Line by line: nothing waits in a buffer when the process is killed.
    return io.TextIOWrapper(io.BufferedWriter(kind(own, "w")), encoding=encoding, errors=errors, line_buffering=True)
