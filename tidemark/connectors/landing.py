"""What became of the slices of a run, and what waits to be published."""

import json
from dataclasses import asdict, dataclass

from tidemark.connectors import lateness


@dataclass(frozen=True)
class SliceDone:
    """What became of one slice."""

    number: int
    read: int
    landed: int
    duplicates: int
    quarantined: int
    files: tuple[str, ...]
    quarantine: tuple[str, ...]
    late: tuple[int, ...] = lateness.NONE
    # Fields that the source had not described, as a serialised schema. The slice is then read again with them.
    grew: str = ""
    pages: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "SliceDone":
        found = json.loads(text)
        return cls(**found | {each: tuple(found[each]) for each in ("files", "quarantine", "late")})

    @classmethod
    def read_from(cls, note: bytes) -> "SliceDone | None":
        """What an object says that a run left; None if it is torn, or another version of Tidemark wrote it."""
        try:
            return cls.from_json(note)
        except (ValueError, TypeError, KeyError):
            return None


@dataclass(frozen=True)
class StagedLanding:
    """What waits on the run's branch. `snapshot` is None when nothing new was read: there is nothing to publish."""

    base: int | None
    snapshot: int | None
    slices: tuple[SliceDone, ...]
    # Whether the quarantine has something to publish too.
    quarantines: bool = False
    quarantine_base: int | None = None
    # Records in the window, as the source counts them after they were read.
    at_source: int | None = None

    @property
    def read(self) -> int:
        return sum(each.read for each in self.slices)

    @property
    def landed(self) -> int:
        return sum(each.landed for each in self.slices)

    @property
    def files(self) -> list[str]:
        return [path for each in self.slices for path in each.files]
