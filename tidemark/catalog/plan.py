"""What a run will do: its mode and why, and what the next one must know of it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, computed_field

from tidemark.catalog.entities import EntityWriter
from tidemark.catalog.labels import earliest
from tidemark.catalog.marker import format_marker
from tidemark.catalog.names import parent_of
from tidemark.catalog.packs.base import Listing
from tidemark.runs.reasons import Mode, Reason


class RunPlan(BaseModel):
    """All that the later steps of a run must know of the first. Kept next to what the run extracts."""

    model_config = ConfigDict(frozen=True)

    connection: str
    run_id: str
    mode: Mode
    reason: Reason
    base_snapshot: int | None
    marker_etag: str | None
    next_marker: datetime
    since: datetime | None
    identity: str
    scope: dict[str, list[str]]
    # Schemas that exist but could not be listed, and the run since when.
    unlisted: dict[str, str]
    # Up to here the published state is known to be true; None: that is not known. And what it has waiting since earlier.
    previous_marker: datetime | None = None
    waiting: dict[str, datetime | None] = Field(default_factory=dict)
    counts: dict[str, int]
    tables_before: int
    # How often the mark had moved: it moves on from there, or not at all.
    mark_version: int = 0
    removals_allowed: bool = False
    # The source's own signal before it was listed, where it is watched: a sensor compares with it.
    fingerprint: str | None = None
    # Another server, database or file answers than the one whose state is published: nothing of that one is carried.
    source_replaced: bool = False

    @computed_field  # type: ignore[prop-decorator]
    @property
    def last_listed(self) -> dict[str, datetime | None]:
        """When the schemas that could not be listed last were, if that is known."""
        return self._last_seen(self.unlisted)

    def on_record(self, vanished: Iterable[str]) -> dict[str, Any]:
        """What the next run must know of what this one could see. `vanished` are tables that were gone when read."""
        still_waiting = [name for name in self.waiting if parent_of(name) in self.unlisted]
        seen = self._last_seen([*self.unlisted, *still_waiting, *vanished])
        return {
            "scope": self.scope,
            "identity": self.identity,
            "unlisted": self.unlisted,
            "last listed": {name: moment and format_marker(moment) for name, moment in seen.items()},
            **({"fingerprint": self.fingerprint} if self.fingerprint else {}),
        }

    def _last_seen(self, names: Iterable[str]) -> dict[str, datetime | None]:
        """A table waits for as long as its schema did, if that was not listed before."""
        return {
            name: earliest(
                self.previous_marker, [self.waiting[each] for each in (parent_of(name), name) if each in self.waiting]
            )
            for name in names
        }


def unlisted_since(listing: Listing, write: EntityWriter, before: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Schemas that could not be listed, each with the first run of this spell."""
    names = (write.name(schema.database, schema.name) for schema in listing.schemas if not schema.listed)
    return {name: before.get(name, run_id) for name in names}
