"""What every object store promises."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from tidemark.errors import ObjectChanged, ObjectMissing, StoreError, StoreIgnoresConditions, UsageError
from tidemark.store.keys import HIDDEN, checked_folder, checked_key

if TYPE_CHECKING:
    import pyarrow

Body: TypeAlias = "bytes | memoryview | pyarrow.Buffer"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size: int
    etag: str
    # In UTC, and no finer than a second on S3: use it for ages, never to compare versions.
    modified: datetime


@dataclass(frozen=True, slots=True)
class StoredObject:
    body: bytes
    etag: str


class ObjectStore(ABC):
    """Objects under a root, by key. Safe for threads, and picklable: it holds addresses, never a connection."""

    root: str

    # Whether a conditional delete is one step for the service. If not, the object is looked at and then deleted, and a
    # write in between is lost. `probe` finds out.
    conditional_deletes: bool

    # Whether an object that is rewritten with the same content gets the same etag again, as on S3, where it is a digest.
    etags_repeat: bool

    def read(self, key: str) -> bytes:
        """The object's content; ObjectMissing if there is none."""
        found = self.find(key)
        if found is None:
            raise ObjectMissing(f"{self.uri(key)}: there is no such object; check the key and the store's address")
        return found.body

    def find(self, key: str) -> StoredObject | None:
        """Content and etag that belong together, or None."""
        return self._find(checked_key(key))

    def head(self, key: str) -> ObjectInfo | None:
        """Size, etag and time without the content, or None."""
        return self._head(checked_key(key))

    def put(self, key: str, body: Body) -> str:
        """Writes and gives the new etag. A reader sees the old or the new object, never half of one."""
        return self._put(checked_key(key), memoryview(body).cast("B"))

    def put_if_absent(self, key: str, body: Body) -> str:
        """Writes only if there is no object yet; otherwise ObjectChanged."""
        return self._put_if_absent(checked_key(key), memoryview(body).cast("B"))

    def put_if_unchanged(self, key: str, body: Body, etag: str) -> str:
        """Writes only over the object that has this etag; ObjectChanged if it has another or is gone."""
        return self._put_if_unchanged(checked_key(key), memoryview(body).cast("B"), etag)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects below a folder, sorted by key. `a/b` and `a/b/` mean the same: whole parts, so not `a/bc`."""
        return self._list(checked_folder(prefix))

    def delete(self, *keys: str) -> None:
        """Deletes what is there; what is not there is no error."""
        self._delete([checked_key(key) for key in keys])

    def delete_if_unchanged(self, key: str, etag: str) -> bool:
        """Deletes only the object that has this etag; ObjectChanged if it has another.

        False if it was gone already, or if it is gone after a try whose answer was lost: then nobody can say whose delete it
        was.
        """
        return self._delete_if_unchanged(checked_key(key), etag)

    def delete_prefix(self, prefix: str) -> int:
        """Deletes everything below a folder and says how many objects that were."""
        if not prefix:
            raise UsageError(f"delete_prefix('') would empty the whole store {self.root}: name a folder in it")
        keys = [found.key for found in self.list(prefix)]
        self._delete(keys)
        return len(keys)

    def uri(self, key: str) -> str:
        """Where the object is, for messages and links."""
        return f"{self.root}/{key}"

    def probe(self) -> None:
        """Writes, reads and deletes one hidden object to learn whether this store obeys conditions."""
        key = f"{HIDDEN}probe-{secrets.token_hex(8)}"
        try:
            self._probe_with(key)
        except BaseException:
            # What went wrong first is what the reader needs to see, not that clearing up failed as well.
            with suppress(StoreError):
                self._delete([key])
            raise
        self._delete([key])

    def _probe_with(self, key: str) -> None:
        one, two = memoryview(b"1"), memoryview(b"2")
        first = self._put_if_absent(key, one)
        self._must_refuse(lambda: self._put_if_absent(key, two), "if-absent over an existing object")
        second = self._put_if_unchanged(key, two, first)
        self._must_refuse(lambda: self._put_if_unchanged(key, one, first), "if-unchanged with an outdated etag")
        found = self._find(key)
        if found is None or found.body != two or found.etag != second:
            raise StoreError(f"{self.root}: what was written is not what is read back; use another store")
        self._delete([key])
        self._must_refuse(lambda: self._put_if_unchanged(key, one, second), "if-unchanged without an object")
        self.conditional_deletes = self._obeys_conditional_deletes(key)
        self._delete([key])

    @abstractmethod
    def _obeys_conditional_deletes(self, key: str) -> bool:
        """Tried with an object of this key; the caller removes what is left of it."""

    def _must_refuse(self, write: Callable[[], str], condition: str) -> None:
        with suppress(ObjectChanged):
            write()
            raise StoreIgnoresConditions(
                f"{self.root}: this service accepts conditional writes and does not obey them ({condition}), so two "
                f"runs would overwrite each other; use one that does, such as AWS S3, or a local folder"
            )

    @abstractmethod
    def sweep(self, *, everywhere: bool = False, older_than: timedelta = timedelta(0)) -> int:
        """Removes temporary files that killed processes left behind, unless they are younger; says how many.

        It looks where such files are made, which costs little, before every run; `everywhere` looks through the whole store.
        """

    # Below, keys are checked and bodies are flat views.

    @abstractmethod
    def _find(self, key: str) -> StoredObject | None: ...

    @abstractmethod
    def _head(self, key: str) -> ObjectInfo | None: ...

    @abstractmethod
    def _put(self, key: str, body: memoryview) -> str: ...

    @abstractmethod
    def _put_if_absent(self, key: str, body: memoryview) -> str: ...

    @abstractmethod
    def _put_if_unchanged(self, key: str, body: memoryview, etag: str) -> str: ...

    @abstractmethod
    def _list(self, folder: str) -> Iterator[ObjectInfo]: ...

    @abstractmethod
    def _delete(self, keys: Sequence[str]) -> None: ...

    @abstractmethod
    def _delete_if_unchanged(self, key: str, etag: str) -> bool: ...
