"""The folder of a mirror as one writer found it: every change holds only if nobody else has changed the object since."""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from tidemark.errors import ObjectChanged, StoreError
from tidemark.faults import fault_point
from tidemark.store import Body, ObjectStore

# Asks whether this run may still work on the mirror, and raises if not.
Confirm = Callable[[], None]

_BLANKS = bytes.maketrans(b"01", b" \t")
_STAMP_BITS = 32


@dataclass
class MirrorFolder:
    """A writer that was stopped and woken must change nothing that a newer one wrote.

    The run's lease alone cannot promise that: it is confirmed before a change, and the stop may come in between. So every
    write and every delete is bound to the version that was listed at the start, or that this writer made itself.
    """

    store: ObjectStore
    folder: str
    confirm: Confirm | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    # Key → the etag that the object has unless somebody else was here.
    etags: dict[str, str] = field(default_factory=dict)
    # Objects that were not there before. Nobody else knows them until a manifest lists them.
    created: dict[str, str] = field(default_factory=dict)
    # Key → the digest of what this writer wrote.
    written: dict[str, str] = field(default_factory=dict)

    @classmethod
    def look(cls, store: ObjectStore, folder: str, confirm: Confirm | None) -> "MirrorFolder":
        found = list(store.list(folder))
        sizes, etags = {info.key: info.size for info in found}, {info.key: info.etag for info in found}
        return cls(store, folder, confirm, sizes, etags)

    def still_ours(self) -> None:
        if self.confirm is not None:
            self.confirm()

    def stamped(self, lines: memoryview) -> Body:
        """The same lines as a version of their own.

        Where an etag is a digest of the content, as on S3, a rollback brings the old etag back, and a write that waited all
        the while would find the object "unchanged". Blanks at the end of the last line, which mean nothing in JSON, keep
        the versions apart.
        """
        if not self.store.etags_repeat:
            return lines
        stamp = f"{secrets.randbits(_STAMP_BITS):0{_STAMP_BITS}b}".encode().translate(_BLANKS)
        return b"".join((lines[:-1], stamp, lines[-1:]))

    def write(self, key: str, body: Body) -> str:
        """Returns the sha256 of the body."""
        digest = hashlib.sha256(body).hexdigest()
        self.still_ours()
        fault_point("mirror.before_file")
        if key in self.etags:
            self.etags[key] = self.store.put_if_unchanged(key, body, self.etags[key])
        else:
            self.etags[key] = self.created[key] = self.store.put_if_absent(key, body)
        self.written[key] = digest
        fault_point("mirror.after_file")
        return digest

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.still_ours()
            fault_point("mirror.before_stale_delete")
            self.store.delete_if_unchanged(key, self.etags.pop(key))
            fault_point("mirror.after_stale_delete")

    def changed_by_others(self, keys: Iterable[str]) -> list[str]:
        """Those of these objects that are not the version this writer left. A listing only raises the question."""
        listed = {info.key: info.etag for info in self.store.list(self.folder)}
        return [key for key in keys if listed.get(key) != self.etags[key] and self._is_changed(key)]

    def contradicts(self, digests: Mapping[str, str]) -> bool:
        """Whether one of these objects is a version that this writer made, and another one than this digest says."""
        return any(digests.get(key, own) != own and not self._is_changed(key) for key, own in self.written.items())

    def _is_changed(self, key: str) -> bool:
        head = self.store.head(key)
        return head is None or head.etag != self.etags[key]

    def take_back(self) -> None:
        """Removes what this writer created, as long as it is its own version: no newer manifest will ever list it."""
        for key, etag in self.created.items():
            with suppress(ObjectChanged, StoreError):
                self.store.delete_if_unchanged(key, etag)


def without_stamp(body: bytes) -> bytes:
    """The lines as they were before `stamped`, whichever store they were written to."""
    return body.rstrip(b" \t\n") + b"\n" if body.endswith((b" \n", b"\t\n")) else body
