"""What was read of a folder: files of the last days one by one, those of earlier days by a digest.

A digest says of some hundred files of a day that they all are as they were. If one came late, was removed or was replaced,
it does not agree any more, and what is there of them counts as unread: Bronze knows its own, so nothing lands twice.
A state that says too little costs time. It never says too much, so nothing is skipped.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field

from tidemark.connectors.durations import DAY, Duration

# Files that share a digest, about: so many are read again when one of them changes.
TOGETHER = 500


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was listed; `sha256` is known once it was read."""

    path: str
    size: int
    modified: int
    sha256: str = ""

    @property
    def checkpoint(self) -> str:
        return f"{self.path}#sha256={self.sha256}"

    @property
    def day(self) -> int:
        """Days since 1970."""
        return self.modified // DAY


# The path in a checkpoint, in SQL: before `#sha256=` and 64 digits.
PATH_OF_CURSOR = "substr(cursor, 1, length(cursor) - 72)"
# What sorts after every version of a path, put behind it.
AFTER_VERSIONS = "#sha256=g"


@dataclass(frozen=True)
class Seen:
    """The checkpoint. Digests are by day, and within a day by the path."""

    files: Mapping[str, File] = field(default_factory=dict)
    # The first day whose files stand for themselves.
    since: int | None = None
    digests: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str | None) -> "Seen":
        stored = json.loads(text) if text else []
        if isinstance(stored, list):  # as it was before there were digests
            stored = {"files": stored, "since": None, "digests": {}}
        files = {file.path: file for file in (File(*each) for each in stored["files"])}
        return cls(files, stored["since"], {int(day): tuple(each) for day, each in stored["digests"].items()})

    def to_text(self) -> str:
        files = [astuple(file) for _, file in sorted(self.files.items())]
        digests = {str(day): each for day, each in sorted(self.digests.items())}
        return json.dumps({"files": files, "since": self.since, "digests": digests}, separators=(",", ":"))

    def unread(self, listed: Iterable[File]) -> list[File]:
        """The files that are not known to be as they were when they were read, in the order they came into being."""
        found, together = [], dict[tuple[int, int], list[File]]()
        for file in listed:
            if self._by_itself(file.day):
                before = self.files.get(file.path)
                if before is None or (before.size, before.modified) != (file.size, file.modified):
                    found.append(file)
            else:
                together.setdefault(self._place(file), []).append(file)
        for (day, place), files in together.items():
            if digest(files) != self.digests.get(day, ("",))[place]:
                found += files
        return sorted(found, key=lambda file: (file.modified, file.path))

    def moved(self, read: Iterable[File], listed: Iterable[File], look_back: Duration, now: int) -> "Seen":
        """With files that were unread before and are read now; without those that are gone."""
        there = list(listed)
        names, days = {file.path for file in there}, {file.day for file in there}
        files = {path: file for path, file in self.files.items() if path in names}
        files |= {file.path: file for file in read}
        # A file from the future must not make all others old.
        newest = max((file.modified for file in files.values() if file.modified <= now), default=None)
        since = self.since if newest is None else max(self.since or 0, (newest - look_back.nanoseconds) // DAY)
        after = Seen({}, since, {day: each for day, each in self.digests.items() if day in days})
        old = dict[int, list[File]]()
        for file in files.values():
            if not after._by_itself(file.day):
                old.setdefault(file.day, []).append(file)
        digests = dict(after.digests)
        for day, group in old.items():
            digests[day] = digested(group, digests.get(day) or ("",) * -(-len(group) // TOGETHER))
        return Seen({path: file for path, file in files.items() if after._by_itself(file.day)}, since, digests)

    def _by_itself(self, day: int) -> bool:
        return self.since is None or day >= self.since

    def _place(self, file: File) -> tuple[int, int]:
        return file.day, place_of(file, len(self.digests.get(file.day, ("",))))


def digested(files: Iterable[File], before: tuple[str, ...]) -> tuple[str, ...]:
    """Digests of a day, where files take the place of all that shared one with them."""
    together: dict[int, list[File]] = {}
    for file in files:
        together.setdefault(place_of(file, len(before)), []).append(file)
    return tuple(digest(together[place]) if place in together else each for place, each in enumerate(before))


def digest(files: Iterable[File]) -> str:
    lines = sorted(json.dumps([file.path, file.size, file.modified]) for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def place_of(file: File, places: int) -> int:
    return int.from_bytes(hashlib.sha256(file.path.encode()).digest()[:8], "big") % places


def grouped(files: Iterable[File], most: int) -> Iterator[list[File]]:
    """In their order, as many as are worth a task, by their bytes."""
    waiting: list[File] = []
    held = 0
    for file in files:
        if waiting and held + file.size > most:
            yield waiting
            waiting, held = [], 0
        waiting.append(file)
        held += file.size
    if waiting:
        yield waiting
