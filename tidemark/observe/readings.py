"""What the control database says about all subjects at this moment: a few set-based queries, however many there are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from tidemark.clock import Clock
from tidemark.control.leases import Leases
from tidemark.control.migration import is_migrated
from tidemark.control.runs import RUNNING, looked_for_news, seconds_taken
from tidemark.control.schema import forgotten_runs, marks, runs
from tidemark.control.transactions import Transactions
from tidemark.control.url import shown
from tidemark.errors import ControlError, ControlUnreachable

# Prometheus gives a scrape ten seconds by default: the answer "away" must arrive before.
CONNECT_SECONDS = 3
STATEMENT_MILLISECONDS = 5_000

Result = TypeVar("Result")


@dataclass(frozen=True)
class Counted:
    """The runs of a subject that have one status."""

    subject: str
    status: str
    runs: int
    seconds: float
    last: datetime | None


@dataclass(frozen=True)
class LastRun:
    """The newest run of a subject that has ended."""

    subject: str
    status: str
    seconds: float
    steps: Mapping[str, float]
    rows: Mapping[str, int]


@dataclass(frozen=True)
class Readings:
    counted: Sequence[Counted]
    last_runs: Sequence[LastRun]
    # When the mark of each subject last moved.
    marks: Mapping[str, datetime]
    # The subjects whose lease a run holds.
    held: frozenset[str]


class Watched(Transactions):
    """The control database for those who only look: they create no file, migrate nothing, and wait for little."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        if self.sqlite_folder is None and "connect_timeout" not in self._url.query:
            self._url = self._url.update_query_dict({"connect_timeout": str(CONNECT_SECONDS)})

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        return attempt()

    def exists(self) -> bool:
        return True  # or it is an error, which says so

    def _open(self) -> sa.Engine:
        if self.sqlite_folder is not None and not Path(str(self._url.database)).exists():
            raise ControlUnreachable(f"control database {shown(self._url)} does not exist yet: the first run creates it.")
        return super()._open()

    def _migrate(self) -> None:
        with self._transaction(self._open(), write=False) as connection:
            if not is_migrated(connection):
                raise ControlError(
                    f"control database {shown(self._url)} has another schema than this version of Tidemark expects. "
                    "`tidemark doctor` migrates it, or says why not."
                )
        self._migrated = True


def take_readings(control: Watched, tenants: Iterable[str], clock: Clock) -> Readings:
    """All there is to know; the marks of streams are those of the tenants given."""
    held = frozenset(lease.subject for lease in Leases(control, clock).held())
    with control.reading() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text(f"SET LOCAL statement_timeout = {STATEMENT_MILLISECONDS}"))
        return Readings(
            counted=_counted(connection),
            last_runs=[_last_run(row) for row in connection.execute(_newest())],
            marks={subject: at for tenant in ("", *tenants) for subject, at in _marks_of(connection, tenant)},
            held=held,
        )


def _counted(connection: sa.Connection) -> list[Counted]:
    """Runs by subject and status; those whose rows upkeep removed count on."""
    found = [Counted(**row._mapping) for row in connection.execute(_by_status(connection.dialect.name))]
    forgotten = {(row.subject, row.status): row for row in connection.execute(sa.select(forgotten_runs))}
    whole = []
    for each in found:
        gone = forgotten.pop((each.subject, each.status), None)
        whole.append(replace(each, runs=each.runs + gone.runs, seconds=float(each.seconds) + gone.seconds) if gone else each)
    return whole + [Counted(row.subject, row.status, row.runs, row.seconds, None) for row in forgotten.values()]


def _by_status(dialect: str) -> sa.Select[Any]:
    took = seconds_taken(dialect)
    return sa.select(
        runs.c.subject,
        runs.c.status,
        sa.func.count().label("runs"),
        sa.func.coalesce(sa.func.sum(took), 0).label("seconds"),
        sa.func.max(sa.case((looked_for_news(), runs.c.finished_at))).label("last"),
    ).group_by(runs.c.subject, runs.c.status)


def _newest() -> sa.Select[Any]:
    newest = sa.select(sa.func.max(runs.c.number)).where(runs.c.status != RUNNING).group_by(runs.c.subject)
    wanted = (runs.c.subject, runs.c.status, runs.c.started_at, runs.c.finished_at, runs.c.detail)
    return sa.select(*wanted).where(runs.c.number.in_(newest))


def _last_run(row: Any) -> LastRun:
    return LastRun(
        subject=row.subject,
        status=row.status,
        seconds=(row.finished_at - row.started_at).total_seconds(),
        steps=_numbers(row.detail, "seconds"),
        rows=_numbers(row.detail, "rows"),
    )


def _numbers(detail: Any, name: str) -> dict[str, Any]:
    """The numbers of that name in what a run recorded; its other entries are for people."""
    found = detail.get(name) if isinstance(detail, dict) else None
    entries = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in entries if isinstance(value, int | float) and not isinstance(value, bool)}


def _marks_of(connection: sa.Connection, tenant: str) -> Iterable[tuple[str, datetime]]:
    if tenant and connection.dialect.name == "postgresql":
        # Row-level security shows the rows of a tenant to nobody else.
        connection.execute(sa.select(sa.func.set_config("tidemark.tenant", tenant, True)))
    query = sa.select(marks.c.subject, marks.c.moved_at).where(marks.c.tenant == tenant, marks.c.has_value)
    return [(row.subject, row.moved_at) for row in connection.execute(query)]
