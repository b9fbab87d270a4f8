"""Which process this is, written so that another one on the machine can see whether it still lives."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ENDED = ("Z", "X")  # a killed process whose parent has not looked yet is a zombie: it does nothing any more


@dataclass(frozen=True)
class ProcessIdentity:
    """A process among all that ever ran; without /proc only host and pid are known."""

    host: str
    boot_id: str | None
    pid: int
    started: str | None


def this_process() -> ProcessIdentity:
    """The identity of the calling process."""
    pid = os.getpid()
    seen = _state_and_start(pid)
    return ProcessIdentity(socket.gethostname(), _boot_id(), pid, seen[1] if seen else None)


def proven_dead(process: ProcessIdentity) -> bool:
    """Whether that process certainly runs no more; False for what cannot be seen from here."""
    if not seen_from_here(process):
        return False
    seen = _state_and_start(process.pid)
    if seen is None:
        return not _pid_in_use(process.pid)
    state, started = seen
    return state in ENDED or started != process.started  # a later process may have got the same number


def seen_from_here(process: ProcessIdentity) -> bool:
    """Whether this process could see that one: the same machine, since the same boot, in the same space of process ids."""
    here = this_process()
    known = process.boot_id is not None and process.started is not None
    return known and (process.host, process.boot_id) == (here.host, here.boot_id)


def _boot_id() -> str | None:
    """The kernel's boot and the space of process ids: two containers on one machine may share name and boot."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return None


def _state_and_start(pid: int) -> tuple[str, str] | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()  # the name may hold spaces and brackets
    return after_name[0], after_name[19]


def _pid_in_use(pid: int) -> bool:
    """/proc may hide the processes of other users; a signal to one is refused, not lost."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
