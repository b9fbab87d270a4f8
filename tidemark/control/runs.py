"""The ledger of runs: one row for every run of any subject, under the subject's address."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypedDict, Unpack

import sqlalchemy as sa

from tidemark.address import Address
from tidemark.clock import Clock
from tidemark.control.schema import forgotten_runs, marks, runs
from tidemark.control.transactions import Transactions, add_to, insert_missing, set_tenant
from tidemark.errors import LeaseLost, RunAbandoned, StateError, TidemarkError, UnknownRun, UsageError

RUNNING = "running"
ABANDONED = "abandoned"
COUNTING = ("published", "unchanged")  # what "latest" looks at: runs that left a state behind
FINISHED = (*COUNTING, "failed", ABANDONED)
UPKEEP = "upkeep"  # the mode of runs that leave the state as it is: "latest" passes them over
MARK_VERSION = "mark_version"  # in the detail of a run: the version of the subject's mark when the run ended
FORGOTTEN_AT_ONCE = 10_000  # databases take no more parameters; what is left is removed by the next upkeep
# Modes of runs that do not look for what is new: whatever was due before them is due after them.
ASIDE = (UPKEEP, "rollback", "rewind", "restore", "backfill")


@dataclass(frozen=True)
class RunRecord:
    """One run as the ledger has it."""

    subject: str
    run_id: str
    status: str
    mode: str | None
    reason: str | None
    started_at: datetime
    finished_at: datetime | None
    base_snapshot: int | None
    snapshot: int | None
    marker: str | None
    detail: dict[str, Any]
    error: str | None
    dagster_run: str | None


@dataclass(frozen=True)
class NewestRuns:
    """The newest run of a subject, and the newest that counts and looked for what is new. Successful upkeep is neither."""

    newest: RunRecord
    counting: RunRecord | None


class RunFields(TypedDict, total=False):
    """What a run may add to its row; keys of `detail` join those already there."""

    mode: str | None
    reason: str | None
    base_snapshot: int | None
    snapshot: int | None
    marker: str | None
    detail: Mapping[str, Any]
    error: BaseException | str | None


RECORD = [runs.c[field.name] for field in fields(RunRecord)]


class RunLedger:
    """Begins, amends, finishes and finds runs; a finished run never changes again."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def begin(
        self, subject: str, run_id: str, *, dagster_run: str | None = None, detail: Mapping[str, Any] | None = None
    ) -> RunRecord:
        """Enters the run as running; to begin it again while it runs, as a retried step does, changes nothing."""
        row: dict[str, Any] = {"subject": subject, "run_id": run_id, "status": RUNNING, "dagster_run": dagster_run}
        row |= {"started_at": self._clock.now(), "detail": dict(detail or {})}

        def enter(connection: sa.Connection, _repeated: bool) -> RunRecord:
            insert_missing(connection, runs, row)
            return _record(_row(connection, run_id))

        record = self._transactions.write(enter, "run_begin")
        if (record.subject, record.status) != (subject, RUNNING):
            is_now = f"a run of {record.subject} that is {record.status}"
            raise StateError(f"{subject}: run {run_id} is in the ledger already, as {is_now}. Use a new run id.")
        return record

    def update(self, run_id: str, **fields: Unpack[RunFields]) -> RunRecord:
        """Adds to the row of a run that is still running."""
        values, detail = _values(fields), fields.get("detail")
        return self._transactions.write(
            lambda connection, _repeated: _change(connection, run_id, values, detail), "run_update"
        )

    def finish(self, run_id: str, status: str, **fields: Unpack[RunFields]) -> RunRecord:
        """Closes the row of a run that is still running."""
        if status not in FINISHED:
            raise ValueError(f"run {run_id}: '{status}' is no way to finish. Allowed: {', '.join(FINISHED)}.")
        if status == ABANDONED and not fields.get("error"):
            fields["error"] = RunAbandoned("the process of this run ended before the run did; a later run closed its row.")
        values, detail = {**_values(fields), "status": status, "finished_at": self._clock.now()}, fields.get("detail")

        def close(connection: sa.Connection, repeated: bool) -> RunRecord:
            found = _row(connection, run_id)
            if repeated and found is not None and found.status == status:
                return _record(found)  # the commit that got no answer was made
            left = {MARK_VERSION: _mark_version(connection, found.subject)} if found is not None else {}
            return _change(connection, run_id, values, {**(detail or {}), **left})

        return self._transactions.write(close, "run_finish")

    def find(self, subject: str, name: str) -> RunRecord:
        """The run of that id, of that beginning of an id, or `latest`, `latest~1`, … among the runs that count."""
        back = re.fullmatch(r"latest(?:~(\d{1,9}))?", name)
        if back:
            return self._back(subject, int(back[1] or 0))
        begins = sa.func.substr(runs.c.run_id, 1, len(name)) == name  # LIKE minds case on one database only
        found = self._records(_of(subject).where(begins).limit(6)) if name else []
        exact = [run for run in found if run.run_id == name]
        if not found:
            raise UnknownRun(
                f"{subject}: no run '{name}' in its history. `tidemark catalog|stream|model history` lists them."
            )
        if len(found) > 1 and not exact:
            candidates = ", ".join(run.run_id for run in found[:5]) + (", …" if len(found) > 5 else "")
            raise UsageError(f"{subject}: several runs begin with '{name}': {candidates}. Give more of the id.")
        return (exact or found)[0]

    def history(self, subject: str, limit: int | None = None) -> list[RunRecord]:
        """The runs of a subject, newest first."""
        return self._records(_of(subject).limit(limit))

    def with_snapshot(self, subject: str, limit: int) -> list[RunRecord]:
        """The newest runs that left a snapshot behind, however many failed since."""
        return self._records(_of(subject).where(runs.c.snapshot.is_not(None)).limit(limit))

    def latest(self, subject: str, statuses: Sequence[str] = COUNTING) -> RunRecord | None:
        """The newest run that ended in one of these ways."""
        return next(iter(self._records(_of(subject).where(_counts(statuses)).limit(1))), None)

    def running(self, subject: str) -> list[RunRecord]:
        """The runs that have not finished, oldest first: to the holder of the lease, those of processes that were killed."""
        return self._records(_of(subject).where(runs.c.status == RUNNING))[::-1]

    def carried_by(self, dagster_run: str) -> list[RunRecord]:
        """The runs that a Dagster run carried, oldest first: one for each of its subjects that began."""
        return self._records(sa.select(*RECORD).where(runs.c.dagster_run == dagster_run).order_by(runs.c.number))

    def newest(self) -> list[NewestRuns]:
        """Of every subject the newest run, and the newest that counts; sorted by subject."""

        def both(connection: sa.Connection) -> list[NewestRuns]:
            counting = {row.subject: _record(row) for row in connection.execute(_newest_of_each(looked_for_news()))}
            shown = sa.or_(_counts(COUNTING), runs.c.status.not_in(COUNTING))
            newest = (_record(row) for row in connection.execute(_newest_of_each(shown)))
            return [NewestRuns(record, counting.get(record.subject)) for record in newest]

        return sorted(self._transactions.read(both), key=lambda each: each.newest.subject)

    def forget(self, subject: str, *, newest: int, before: datetime, kept: Collection[str]) -> int:
        """Removes rows of runs that ended before then, are not among the newest and are not to be kept; returns how many.

        Of every mode and way to end the newest stays: others look for the last run of a kind. Sums of the rest stay too.
        Only for the holder of the subject's lease.
        """
        last = sa.select(sa.func.max(runs.c.number)).where(runs.c.subject == subject).group_by(runs.c.mode, runs.c.status)
        old = sa.and_(
            runs.c.subject == subject,
            runs.c.status != RUNNING,
            runs.c.finished_at < before,
            runs.c.run_id.not_in(kept),
            runs.c.number.not_in(_young(subject, newest)),
            runs.c.number.not_in(last),
        )

        def remove(connection: sa.Connection, _repeated: bool) -> int:
            found = sa.select(runs.c.number).where(old).order_by(runs.c.number).limit(FORGOTTEN_AT_ONCE)
            numbers = [number for (number,) in connection.execute(found)]
            chosen = runs.c.number.in_(numbers)
            took = sa.func.coalesce(sa.func.sum(seconds_taken(connection.dialect.name)), 0)
            sums = sa.select(runs.c.status, sa.func.count(), took).where(chosen).group_by(runs.c.status)
            for status, count, seconds in connection.execute(sums).all():
                row = {"subject": subject, "status": status, "runs": count, "seconds": float(seconds)}
                add_to(connection, forgotten_runs, row, ("runs", "seconds"))
            connection.execute(sa.delete(runs).where(chosen))
            return len(numbers)

        return self._transactions.write(remove, "run_forget")

    def oldest_begin(self, subject: str, *, newest: int, kept: Collection[str]) -> datetime | None:
        """When the first of the newest runs and of those to be kept began."""
        wanted = sa.or_(runs.c.run_id.in_(kept), runs.c.number.in_(_young(subject, newest)))
        query = sa.select(sa.func.min(runs.c.started_at)).where(runs.c.subject == subject, wanted)
        moment: datetime | None = self._transactions.read(lambda connection: connection.execute(query).scalar())
        return moment

    def _back(self, subject: str, steps: int) -> RunRecord:
        found = self._records(_of(subject).where(_counts(COUNTING)).offset(steps).limit(1))
        if not found:
            ago = "no run that counts yet" if steps == 0 else f"not as many as {steps + 1} runs that count"
            raise UnknownRun(f"{subject}: {ago}. `tidemark catalog|stream|model history` lists its runs.")
        return found[0]

    def _records(self, query: sa.Select[Any]) -> list[RunRecord]:
        return self._transactions.read(lambda connection: [_record(row) for row in connection.execute(query)])


def _mark_version(connection: sa.Connection, subject: str) -> int:
    set_tenant(connection, Address.tenant_of(subject) or "")
    return connection.execute(sa.select(marks.c.version).where(marks.c.subject == subject)).scalar() or 0


def _young(subject: str, newest: int) -> sa.Select[Any]:
    of_subject = sa.select(runs.c.number).where(runs.c.subject == subject)
    return of_subject.order_by(runs.c.number.desc()).limit(newest)


def _of(subject: str) -> sa.Select[Any]:
    return sa.select(*RECORD).where(runs.c.subject == subject).order_by(runs.c.number.desc())


def _counts(statuses: Sequence[str]) -> sa.ColumnElement[bool]:
    return sa.and_(runs.c.status.in_(statuses), runs.c.mode.is_distinct_from(UPKEEP))


def looked_for_news() -> sa.ColumnElement[bool]:
    """Runs that count and answer whatever was due: a schedule's tick, a change of the source."""
    return sa.and_(runs.c.status.in_(COUNTING), sa.func.coalesce(runs.c.mode, "").not_in(ASIDE))


def seconds_taken(dialect: str) -> sa.ColumnElement[Any]:
    """How long a run took, computed by the database."""
    if dialect == "postgresql":
        return sa.extract("epoch", runs.c.finished_at) - sa.extract("epoch", runs.c.started_at)
    return (sa.func.julianday(runs.c.finished_at) - sa.func.julianday(runs.c.started_at)) * 86_400


def _newest_of_each(condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    newest = sa.select(sa.func.max(runs.c.number)).where(condition).group_by(runs.c.subject)
    return sa.select(*RECORD).where(runs.c.number.in_(newest))


def _row(connection: sa.Connection, run_id: str) -> Any:
    return connection.execute(sa.select(*RECORD).where(runs.c.run_id == run_id).with_for_update()).one_or_none()


def _record(row: Any) -> RunRecord:
    return RunRecord(**row._mapping)


def _change(connection: sa.Connection, run_id: str, values: dict[str, Any], detail: Mapping[str, Any] | None) -> RunRecord:
    found = _row(connection, run_id)
    if found is None:
        raise UnknownRun(f"no run '{run_id}' in the ledger: it was never begun.")
    if detail:
        values = {**values, "detail": {**found.detail, **detail}}
    running = (runs.c.run_id == run_id, runs.c.status == RUNNING)
    # One statement tests and sets: a run that another process has closed stays as that one left it.
    if not values:
        changed = int(found.status == RUNNING)
    else:
        changed = connection.execute(sa.update(runs).where(*running).values(**values)).rowcount
    if not changed:
        raise LeaseLost(
            f"{found.subject}: run {run_id} is {found.status} and cannot be changed any more: it has ended, or another run "
            "took over from it. Start a new one."
        )
    return _record(_row(connection, run_id))


def _values(fields: RunFields) -> dict[str, Any]:
    values = {name: value for name, value in fields.items() if name != "detail"}
    unknown = sorted(values.keys() - RunFields.__annotations__.keys())
    if unknown:
        raise TypeError(f"a run has no field {', '.join(unknown)}")
    if "error" in values:
        values["error"] = _described(fields["error"])
    return values


def _described(error: BaseException | str | None) -> str | None:
    if error is None:
        return None
    if isinstance(error, TidemarkError):
        error = f"{type(error).__name__}: {error}"
    elif isinstance(error, BaseException):
        error = type(error).__name__  # the words of foreign errors may quote rows and passwords
    # PostgreSQL refuses NUL and both refuse lone surrogates; a failure must be recorded all the same.
    return error.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
