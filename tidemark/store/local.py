"""Objects as files in a folder."""

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tidemark.errors import ObjectChanged, StoreError, StoreFull
from tidemark.faults import fault_point
from tidemark.store.base import ObjectInfo, ObjectStore, StoredObject
from tidemark.store.keys import HIDDEN, is_hidden

# One lock file for the whole store, in its root. It is never removed: a process that still holds the removed file and
# one that makes a new one would both believe they have the lock.
LOCK = f"{HIDDEN}lock"

# A probe in progress is younger than this; an older one belongs to a killed process.
PROBE_GRACE_SECONDS = 3600

_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStore(ObjectStore):
    """Every object is a file. Files are only ever replaced by rename, so an open file is one version for good."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(root))

    def sweep(self) -> int:
        removed = 0
        for folder, _, names in os.walk(self.root):
            abandoned = [f"{folder}/{name}" for name in names if _is_abandoned(f"{folder}/{name}")]
            with self._named_errors("sweep", self.root):
                removed += sum(_removed(path) for path in abandoned)
                if abandoned:
                    self._prune(folder)
        return removed

    def _find(self, key: str) -> StoredObject | None:
        with self._named_errors("read", self.uri(key)):
            try:
                with open(self.uri(key), "rb", buffering=0) as source:
                    return StoredObject(source.readall(), _etag(os.fstat(source.fileno())))
            except _NO_OBJECT:
                return None

    def _head(self, key: str) -> ObjectInfo | None:
        with self._named_errors("look at", self.uri(key)):
            status = _status(self.uri(key))
            return None if status is None else ObjectInfo(key, status.st_size, _etag(status))

    def _put(self, key: str, body: memoryview) -> str:
        path = self.uri(key)
        with self._named_errors("write", path), self._temporary(path, body) as (temporary, etag):
            # Shared, so that plain writes do not wait for each other but never slip between the comparison and the
            # rename of a put-if-unchanged.
            with self._locked(fcntl.LOCK_SH):
                os.replace(temporary, path)
            _sync_folder(os.path.dirname(path))
        return etag

    def _put_if_absent(self, key: str, body: memoryview) -> str:
        path = self.uri(key)
        with self._named_errors("write", path), self._temporary(path, body) as (temporary, etag):
            try:
                # A hard link appears at once with its full content, and never over another file.
                os.link(temporary, path)
            except FileExistsError:
                if os.path.isdir(path):
                    raise
                raise ObjectChanged(f"{path}: somebody else wrote it first; read it again and decide anew") from None
            _sync_folder(os.path.dirname(path))
        return etag

    def _put_if_unchanged(self, key: str, body: memoryview, etag: str) -> str:
        path = self.uri(key)
        with self._named_errors("write", path), self._temporary(path, body) as (temporary, new_etag):
            with self._locked(fcntl.LOCK_EX):
                status = _status(path)
                if status is None or _etag(status) != etag:
                    raise ObjectChanged(f"{path}: it changed or is gone since it was read; read it again")
                os.replace(temporary, path)
            _sync_folder(os.path.dirname(path))
        return new_etag

    def _list(self, folder: str) -> Iterator[ObjectInfo]:
        with self._named_errors("list", self.uri(folder)):
            yield from _walk(self.uri(folder), folder)

    def _delete(self, keys: Sequence[str]) -> None:
        if not os.path.isdir(self.root):
            return
        with self._named_errors("delete from", self.root):
            for key in keys:
                with suppress(*_NO_OBJECT), self._locked(fcntl.LOCK_SH):
                    os.unlink(self.uri(key))
            for folder in {os.path.dirname(self.uri(key)) for key in keys}:
                self._prune(folder)

    @contextmanager
    def _temporary(self, path: str, body: memoryview) -> Iterator[tuple[str, str]]:
        """A finished, durable file beside the object, with the etag it will have; gone at the end of the block."""
        folder = os.path.dirname(path)
        handle, temporary = _new_temporary(folder)
        try:
            _write_all(handle, body)
            fault_point("store.local.before_rename")
            yield temporary, _etag(os.fstat(handle))
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            self._prune(folder)
            raise
        else:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        finally:
            os.close(handle)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        # Opened anew each time: flock belongs to the open file, so threads of one process exclude each other as well.
        handle = os.open(f"{self.root}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            # Said aloud, because a child forked meanwhile holds the same open file: closing ours would not release it.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def _prune(self, folder: str) -> None:
        """Removes the folder and those above it as far as they are empty, and makes the removal durable."""
        while folder != self.root:
            try:
                os.rmdir(folder)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError:
                break
            folder = os.path.dirname(folder)
        _sync_folder(folder)

    @contextmanager
    def _named_errors(self, doing: str, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(
                    f"{what}: no space left, nothing was changed; free some under {self.root} and run again"
                ) from error
            advice = _ADVICE.get(error.errno or 0, "check the disk and the folder")
            raise StoreError(f"{what}: could not {doing} it ({error.strerror}); {advice} ({self.root})") from error


_ADVICE = {
    errno.EACCES: "give this user access to the store's folder",
    errno.EPERM: "use a file system that has hard links and a folder this user owns",
    errno.EOPNOTSUPP: "use a file system that has hard links and locks",
    errno.ENOLCK: "use a file system that has locks",
    errno.EROFS: "choose a folder that can be written",
    errno.EISDIR: "a key cannot be an object and a folder at once: choose another",
    errno.EEXIST: "a key cannot be an object and a folder at once: choose another",
    errno.ENOTDIR: "a key cannot be an object and a folder at once: choose another",
    errno.ENAMETOOLONG: "choose a shorter key",
}


def _etag(status: os.stat_result) -> str:
    """Changes on every rewrite and costs no reading of the content.

    A rewrite is a new file that exists beside the old one, so its inode differs from that of its predecessor. A later
    rewrite may get a freed inode again: then the time differs, which `_write_all` sets to the nanosecond.
    """
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"


def _status(path: str) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except _NO_OBJECT:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _new_temporary(folder: str) -> tuple[int, str]:
    """A new file, locked for as long as its writer lives: that is how a sweep tells the living from the dead."""
    for _ in range(100):
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
    raise StoreError(f"{folder}: it cannot be made, or others keep removing it; check what it is")


def _write_all(handle: int, body: memoryview) -> None:
    while body:
        body = body[os.write(handle, body) :]
    # The kernel's own time stamps move in steps of milliseconds: two rewrites could share one.
    now = time.time_ns()
    os.utime(handle, ns=(now, now))
    os.fsync(handle)


def _make_folder(folder: str) -> None:
    """Makes the folder durable, not only present: a new folder is an entry in the one above."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folder(above)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(above)


def _sync_folder(folder: str) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # Another process deleted the last object and with it the folder.
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _walk(folder: str, prefix: str) -> Iterator[ObjectInfo]:
    try:
        with os.scandir(folder) as entries:
            # With its slash a folder sorts among the files as its keys do: 'a-b' < 'a/x' < 'a0'.
            found = sorted((entry.name + "/" * entry.is_dir(), entry) for entry in entries if not is_hidden(entry.name))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in found:
        if name.endswith("/"):
            yield from _walk(entry.path, prefix + name)
        elif (status := _status(entry.path)) is not None:
            yield ObjectInfo(prefix + name, status.st_size, _etag(status))


def _is_abandoned(path: str) -> bool:
    name = os.path.basename(path)
    try:
        if name.startswith(f"{HIDDEN}probe-"):
            return os.stat(path).st_mtime < time.time() - PROBE_GRACE_SECONDS
        return name.startswith(HIDDEN) and name.endswith(".tmp")
    except FileNotFoundError:
        return False


def _removed(path: str) -> bool:
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
