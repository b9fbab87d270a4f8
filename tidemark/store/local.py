"""Objects as files in a folder."""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

from tidemark.errors import ObjectChanged, StoreError, StoreFull
from tidemark.store.base import ObjectInfo, ObjectStore, StoredObject
from tidemark.store.files import (
    NO_OBJECT,
    etag_of,
    in_its_folder,
    info_of,
    is_abandoned,
    make_root,
    paths_in,
    remove_abandoned,
    status_of,
    sync_folder,
    temporary_file,
    walk,
)
from tidemark.store.keys import HIDDEN

# One lock file for the whole store, in its root. It is never removed: a process that still holds the removed file and
# one that makes a new one would both believe they have the lock.
LOCK = f"{HIDDEN}lock"

# The lock is held for less than a millisecond, except by a process that was stopped inside. Nobody waits for that one.
LOCK_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05

# Where files are written before they get their names: in one folder, so that what killed writers left is found without
# looking through the whole store.
TEMPORARY = f"{HIDDEN}tmp"


class LocalStore(ObjectStore):
    """Every object is a file. Files are only ever replaced by rename, so an open file is one version for good."""

    conditional_deletes = True
    etags_repeat = False

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(root))

    def sweep(self, *, everywhere: bool = False, older_than: timedelta = timedelta(0)) -> int:
        own = (self.root, f"{self.root}/{TEMPORARY}")
        removed = 0
        for folder in (each for each, _, _ in os.walk(self.root)) if everywhere else own:
            with self._named_errors("sweep", self.root):
                abandoned = [path for path in paths_in(folder) if is_abandoned(path, older_than)]
                removed += sum(remove_abandoned(path) for path in abandoned)
                if abandoned and folder not in own:
                    self._prune(folder)
        return removed

    def _find(self, key: str) -> StoredObject | None:
        with self._named_errors("read", self.uri(key)):
            try:
                with open(self.uri(key), "rb", buffering=0) as source:
                    return StoredObject(source.readall(), etag_of(os.fstat(source.fileno())))
            except NO_OBJECT:
                return None

    def _head(self, key: str) -> ObjectInfo | None:
        with self._named_errors("look at", self.uri(key)):
            status = status_of(self.uri(key))
            return None if status is None else info_of(key, status)

    def _put(self, key: str, body: memoryview) -> str:
        path = self.uri(key)

        def name(temporary: str) -> None:
            # Shared, so that plain writes do not wait for each other but never slip between the comparison and the
            # rename of a put-if-unchanged.
            with self._locked(fcntl.LOCK_SH):
                os.replace(temporary, path)

        return self._write(path, body, name)

    def _put_if_absent(self, key: str, body: memoryview) -> str:
        path = self.uri(key)

        def name(temporary: str) -> None:
            try:
                # A hard link appears at once with its full content, and never over another file.
                os.link(temporary, path)
            except FileExistsError:
                if os.path.isdir(path):
                    raise
                raise ObjectChanged(f"{path}: somebody else wrote it first; read it again") from None

        return self._write(path, body, name)

    def _put_if_unchanged(self, key: str, body: memoryview, etag: str) -> str:
        path = self.uri(key)

        def name(temporary: str) -> None:
            with self._locked(fcntl.LOCK_EX):
                self._has_etag(path, etag, missing_is_fine=False)
                os.replace(temporary, path)

        return self._write(path, body, name)

    def _has_etag(self, path: str, etag: str, *, missing_is_fine: bool) -> bool:
        """Whether there is such an object; ObjectChanged if there is another."""
        status = status_of(path)
        if status is None and missing_is_fine:
            return False
        if status is None or etag_of(status) != etag:
            raise ObjectChanged(f"{path}: it changed or is gone since it was read; read it again")
        return True

    def _list(self, folder: str) -> Iterator[ObjectInfo]:
        with self._named_errors("list", self.uri(folder)):
            yield from walk(self.uri(folder), folder)

    def _delete(self, keys: Sequence[str]) -> None:
        if not os.path.isdir(self.root):
            return
        with self._named_errors("delete from", self.root):
            for key in keys:
                with suppress(*NO_OBJECT), self._locked(fcntl.LOCK_SH):
                    os.unlink(self.uri(key))
            for folder in {os.path.dirname(self.uri(key)) for key in keys}:
                self._prune(folder)

    def _delete_if_unchanged(self, key: str, etag: str) -> bool:
        path = self.uri(key)
        if not os.path.isdir(self.root):
            return False
        with self._named_errors("delete", path):
            with self._locked(fcntl.LOCK_EX):
                if not self._has_etag(path, etag, missing_is_fine=True):
                    return False
                os.unlink(path)
            self._prune(os.path.dirname(path))
        return True

    def _obeys_conditional_deletes(self, key: str) -> bool:  # noqa: ARG002
        """By the lock, which every change of an object waits for."""
        return True

    def _write(self, path: str, body: memoryview, name: Callable[[str], None]) -> str:
        """Writes a whole and durable file, which `name` then gives its place; returns its etag."""
        with self._named_errors("write", path):
            make_root(self.root)
            try:
                return self._write_in(f"{self.root}/{TEMPORARY}", path, body, name)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            # A folder of the store lies on another file system, and no rename leads there: the file must be made inside.
            return self._write_in(os.path.dirname(path), path, body, name)

    def _write_in(self, folder: str, path: str, body: memoryview, name: Callable[[str], None]) -> str:
        try:
            with temporary_file(folder, body) as (temporary, etag):
                in_its_folder(path, lambda: name(temporary))
                sync_folder(os.path.dirname(path))
                return etag
        except BaseException:
            self._prune(os.path.dirname(path))
            raise

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        # Opened each time: flock belongs to the open file, so threads of one process exclude each other as well.
        handle = os.open(f"{self.root}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._take(handle, kind)
            yield
        finally:
            # Said aloud, because a child forked meanwhile holds the same open file: closing ours would not release it.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def _take(self, handle: int, kind: int) -> None:
        until, pause = time.monotonic() + LOCK_SECONDS, _FIRST_PAUSE
        while True:
            with suppress(BlockingIOError):
                return fcntl.flock(handle, kind | fcntl.LOCK_NB)
            if time.monotonic() > until:
                raise StoreError(
                    f"{self.root}: another process has held the store's lock for {LOCK_SECONDS:g} seconds. Nothing was "
                    f"changed. Find it with `fuser {self.root}/{LOCK}`: it was stopped or hangs. End it and run again."
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

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
        sync_folder(folder)

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
