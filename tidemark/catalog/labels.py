"""What happened to every unit since the previous state: the only place that decides it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemark.catalog.rows import Label
from tidemark.catalog.scope import Scope
from tidemark.errors import DuplicateName, TooManyRemoved

GUARDED_TABLES = 10


def earliest(moment: datetime | None, others: Iterable[datetime | None]) -> datetime | None:
    """The earliest of some moments; None if one of them is not known."""
    known = [moment, *others]
    return None if None in known else min(each for each in known if each is not None)


@dataclass(frozen=True, slots=True)
class Known:
    """A unit in the previous state."""

    qualified_name: str
    object_id: str | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A unit that the source lists now."""

    qualified_name: str
    object_id: str | None
    digest: str | None
    created_at: datetime | None = None
    changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """What the previous run could see, without which CREATED and BACKFILL look the same."""

    scope: Scope
    unlisted_schemas: frozenset[str] = frozenset()
    since: datetime | None = None
    # Schemas that could not be listed and tables that could not be read, and when they last were; None: that is not known.
    waiting: Mapping[str, datetime | None] = field(default_factory=dict)

    def since_of(self, schema_name: str, table_name: str) -> datetime | None:
        """From when on a table is compared by the clock; None: whatever its clock says. Both names are qualified."""
        return earliest(self.since, [self.waiting[name] for name in (schema_name, table_name) if name in self.waiting])

    @property
    def earliest(self) -> datetime | None:
        """From when on a listing must be complete."""
        return earliest(self.since, self.waiting.values())

    def could_see(self, schema: str, table: str, schema_name: str) -> bool:
        """Whether that run would have listed a table. `schema_name` is the schema's qualified name."""
        return schema_name not in self.unlisted_schemas and self.scope.covers(schema, table)


def unique(seen: Iterable[Seen]) -> dict[str, Seen]:
    """The listed units by name. A source that lists one twice is not believed."""
    by_name: dict[str, Seen] = {}
    for unit in seen:
        if unit.qualified_name in by_name:
            raise DuplicateName(
                f"the source listed {unit.qualified_name} twice; nothing was read. "
                "Check the pack's listing query or the source's catalogue for duplicates."
            )
        by_name[unit.qualified_name] = unit
    return by_name


def label(known: Known | None, seen: Seen, *, was_visible: bool, since: datetime | None = None) -> Label:
    """The label of a unit that the source lists now.

    `was_visible`: the previous run would have listed it. `since` is set for sources that only have a clock: nothing
    older than that has changed.
    """
    if known is None:
        existed = since is not None and seen.created_at is not None and seen.created_at < since
        return Label.CREATED if was_visible and not existed else Label.BACKFILL
    if since is not None and seen.changed_at is not None and seen.changed_at < since:
        return Label.NO_CHANGE
    same = (known.object_id, known.digest) == (seen.object_id, seen.digest)
    return Label.NO_CHANGE if same else Label.UPDATED


def guard_removals(known: int, removed: int, seen: int, max_percent: float, allowed: bool, connection: str) -> None:
    """Stops a run that would empty the catalogue because a listing went wrong."""
    everything = known > 0 and seen == 0
    too_many = removed > GUARDED_TABLES and removed * 100 > known * max_percent
    if (everything or too_many) and removed and not allowed:
        raise TooManyRemoved(
            f"{connection}: this run would remove {removed} of {known} tables (limit {max_percent:g} %, and more than "
            f"{GUARDED_TABLES}); nothing was changed. If they are really gone: "
            f"`tidemark catalog run {connection} --allow-removals`."
        )


def counted(labels: Iterable[Label]) -> Mapping[str, int]:
    """How many units got which label; every label is there, so that a reader need not guess a zero."""
    counts = {str(each): 0 for each in Label}
    for each in labels:
        counts[each] += 1
    return counts
