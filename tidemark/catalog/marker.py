"""marker.txt: one line of UTC ISO 8601, stored raw; prepone happens on reading only."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidemark.errors import LostRace, MarkerCorrupt, ObjectChanged
from tidemark.faults import fault_point
from tidemark.store import ObjectStore

_FORM = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|\+00:00)\Z")

FUTURE_TOLERANCE = timedelta(hours=24)
# No catalogue is older. Moments before it cannot be moved back, and some servers cannot compare them.
EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)


def format_marker(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_moment(text: str) -> datetime:
    """The moment that is written in a marker's form. Anything but that one form is refused: it must never reach a query."""
    line = text.strip()
    if not _FORM.fullmatch(line):
        raise MarkerCorrupt("marker.txt is not one line of UTC ISO 8601; the next run will be full and write a new one.")
    try:
        return datetime.fromisoformat(line.replace("Z", "+00:00")).astimezone(UTC)
    except ValueError as bad:
        raise MarkerCorrupt("marker.txt holds a date that does not exist; the next run will be full.") from bad


def parse_marker(text: str) -> datetime:
    """The marker's moment, if it can be one."""
    moment = parse_moment(text)
    if moment < EARLIEST:
        raise MarkerCorrupt(
            f"marker.txt is earlier than {EARLIEST:%Y-%m-%d}; the next run will be full and write a new one."
        )
    return moment


def preponed(moment: datetime, hours: float) -> datetime:
    """So many hours earlier, but never before the earliest marker."""
    try:
        return max(moment - timedelta(hours=hours), EARLIEST)
    except OverflowError:
        return EARLIEST


@dataclass(frozen=True, slots=True)
class Marker:
    """marker.txt as it was found. `moment` is None when it is missing or corrupt."""

    moment: datetime | None
    etag: str | None
    corrupt: bool = False

    def in_future(self, now: datetime) -> bool:
        return self.moment is not None and self.moment > now + FUTURE_TOLERANCE


class MarkerFile:
    """The marker of one connection. It is only ever swapped for the one that was read."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self.key = key

    def read(self) -> Marker:
        found = self._store.find(self.key)
        if found is None:
            return Marker(None, None)
        try:
            return Marker(parse_marker(bytes(found.body).decode()), found.etag)
        except (MarkerCorrupt, UnicodeDecodeError):
            return Marker(None, found.etag, corrupt=True)

    def swap(self, read: Marker, moment: datetime) -> None:
        body = (format_marker(moment) + "\n").encode()
        fault_point("marker.before_swap")
        try:
            if read.etag is None:
                self._store.put_if_absent(self.key, body)
            else:
                self._store.put_if_unchanged(self.key, body, read.etag)
        except ObjectChanged as lost:
            raise LostRace(f"{self.key} was changed by somebody else during this run; it was left as it is.") from lost
        fault_point("marker.after_swap")
