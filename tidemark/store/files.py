"""Files and folders of a local store: whole, durable, and gone when their writer is."""

import fcntl
import os
import random
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from tidemark.errors import StoreError
from tidemark.faults import fault_point
from tidemark.store.base import ObjectInfo
from tidemark.store.keys import HIDDEN, is_hidden

# A probe in progress is younger than this; an older one belongs to a killed process.
PROBE_GRACE_SECONDS = 3600

# How long a folder is made again that others keep removing.
TRY_SECONDS = 2.0

NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def etag_of(status: os.stat_result) -> str:
    """Changes on every rewrite and costs no reading of the content.

    A rewrite is a new file that exists while the old one does, so its inode differs from that of its predecessor. A later
    rewrite may get a freed inode again: then the time differs, which `_write_all` sets to the nanosecond.
    """
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"


def status_of(path: str) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except NO_OBJECT:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def make_root(folder: str) -> None:
    """Makes a store's folder, for its owner alone; one that is there is left as it is.

    One barrier at the door: state holds the names and descriptions of a company's data. What lies below has the modes that
    the umask gives, so that who opens the door to other programs (`chmod`) lets them read `current-state/`.
    """
    _make_folder(folder, 0o700)


@contextmanager
def temporary_file(folder: str, body: memoryview) -> Iterator[tuple[str, str]]:
    """A finished, durable file with the etag it will keep; its first name is gone at the end of the block."""
    handle, temporary = _new_temporary(folder)
    try:
        _write_all(handle, body)
        fault_point("store.local.before_rename")
        yield temporary, etag_of(os.fstat(handle))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        os.close(handle)


def in_its_folder(path: str, name: Callable[[], None]) -> None:
    """Gives a file its name in a folder that may have to be made first."""
    folder = os.path.dirname(path)
    for _ in _tries():
        try:
            _make_folder(folder)
            return name()
        except FileNotFoundError:
            continue  # A delete removed the empty folder in between.
    raise _unmakeable(folder)


def _tries() -> Iterator[None]:
    """Others make and remove the same folder, and on a busy machine they may be first a hundred times in a row."""
    until = time.monotonic() + TRY_SECONDS
    for _ in range(20):
        yield
    while time.monotonic() < until:
        time.sleep(random.uniform(0, 0.002))
        yield


def _new_temporary(folder: str) -> tuple[int, str]:
    """A new file, locked for as long as its writer lives: that is how a sweep knows which writers live."""
    for _ in _tries():
        temporary = f"{folder}/{HIDDEN}{os.getpid()}-{secrets.token_hex(8)}.tmp"
        try:
            _make_folder(folder)
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            continue  # A delete removed the empty folder in between.
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            os.close(handle)
            os.unlink(temporary)
            raise
        if os.fstat(handle).st_nlink:
            return handle, temporary
        os.close(handle)  # A sweep took it before it was locked.
    raise _unmakeable(folder)


def _unmakeable(folder: str) -> StoreError:
    return StoreError(f"{folder}: it cannot be made, or others keep removing it; check what it is")


def _write_all(handle: int, body: memoryview) -> None:
    while body:
        body = body[os.write(handle, body) :]
    # The kernel's own time stamps move in steps of milliseconds: two rewrites could share one.
    now = time.time_ns()
    os.utime(handle, ns=(now, now))
    os.fsync(handle)


def _make_folder(folder: str, mode: int = 0o777) -> None:
    """Makes the folder durable, not only present: a new folder is an entry in the one above."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folder(above)
    with suppress(FileExistsError):
        os.mkdir(folder, mode)
    sync_folder(above)


def sync_folder(folder: str) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # Another process deleted the last object and with it the folder.
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def walk(folder: str, prefix: str) -> Iterator[ObjectInfo]:
    try:
        with os.scandir(folder) as entries:
            # With its slash a folder sorts among the files as its keys do: 'a-b' < 'a/x' < 'a0'.
            found = sorted((entry.name + "/" * entry.is_dir(), entry) for entry in entries if not is_hidden(entry.name))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in found:
        if name.endswith("/"):
            yield from walk(entry.path, prefix + name)
        elif (status := status_of(entry.path)) is not None:
            yield info_of(prefix + name, status)


def info_of(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, etag_of(status), datetime.fromtimestamp(status.st_mtime, UTC))


def paths_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_abandoned(path: str, older_than: timedelta = timedelta(0)) -> bool:
    name = os.path.basename(path)
    is_probe = name.startswith(f"{HIDDEN}probe-")
    if not is_probe and not (name.startswith(HIDDEN) and name.endswith(".tmp")):
        return False
    grace = max(older_than.total_seconds(), PROBE_GRACE_SECONDS if is_probe else 0)
    try:
        return not grace or os.stat(path).st_mtime < time.time() - grace
    except FileNotFoundError:
        return False


def remove_abandoned(path: str) -> bool:
    """Removes a temporary file whose writer is dead."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(handle)
    return True
