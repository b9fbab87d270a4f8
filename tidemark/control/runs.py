"""The ledger of runs: one row for every run of any of the five systems."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypedDict, Unpack

import sqlalchemy as sa

from tidemark.clock import Clock
from tidemark.control.schema import runs
from tidemark.control.transactions import Transactions
from tidemark.errors import StateError, TidemarkError, UnknownRun, UsageError

RUNNING = "running"
COUNTING = ("published", "unchanged", "rolled-back")  # what "latest" looks at: runs that left a state behind
FINISHED = (*COUNTING, "failed", "abandoned")


@dataclass(frozen=True)
class RunRecord:
    """One run as the ledger has it."""

    system: str
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

    def begin(self, system: str, subject: str, run_id: str, detail: Mapping[str, Any] | None = None) -> RunRecord:
        """Enters the run as running; to begin it again while it runs, as a retried step does, changes nothing."""
        with self._transactions.write("run_begin") as connection:
            found = _row(connection, run_id)
            if found is None:
                row = {"system": system, "subject": subject, "run_id": run_id, "status": RUNNING}
                connection.execute(sa.insert(runs).values(**row, started_at=self._clock.now(), detail=dict(detail or {})))
                return _record(_row(connection, run_id))
        if (found.system, found.subject, found.status) != (system, subject, RUNNING):
            raise StateError(f"{subject}: run {run_id} is in the ledger already, as {_named(found)}. Use a new run id.")
        return _record(found)

    def update(self, run_id: str, **fields: Unpack[RunFields]) -> RunRecord:
        """Adds to the row of a run that is still running."""
        with self._transactions.write("run_update") as connection:
            return _change(connection, run_id, _values(fields), fields.get("detail"))

    def finish(self, run_id: str, status: str, **fields: Unpack[RunFields]) -> RunRecord:
        """Closes the row of a run that is still running."""
        if status not in FINISHED:
            raise ValueError(f"run {run_id}: '{status}' is no way to finish. Allowed: {', '.join(FINISHED)}.")
        values = {**_values(fields), "status": status, "finished_at": self._clock.now()}
        with self._transactions.write("run_finish") as connection:
            return _change(connection, run_id, values, fields.get("detail"))

    def find(self, system: str, subject: str, name: str) -> RunRecord:
        """The run of that id, of that beginning of an id, or `latest`, `latest~1`, … among the runs that count."""
        back = re.fullmatch(r"latest(?:~(\d{1,9}))?", name)
        if back:
            return self._back(system, subject, int(back[1] or 0))
        begins = sa.func.substr(runs.c.run_id, 1, len(name)) == name  # LIKE minds case on one database only
        query = _of(system, subject).where(begins).limit(6)
        with self._transactions.read() as connection:
            found = [_record(row) for row in connection.execute(query)] if name else []
        exact = [run for run in found if run.run_id == name]
        if not found:
            raise UnknownRun(f"{subject}: no run '{name}' in its history. `tidemark history` lists them.")
        if len(found) > 1 and not exact:
            candidates = ", ".join(run.run_id for run in found[:5]) + (", …" if len(found) > 5 else "")
            raise UsageError(f"{subject}: several runs begin with '{name}': {candidates}. Give more of the id.")
        return (exact or found)[0]

    def history(self, system: str, subject: str, limit: int | None = None) -> list[RunRecord]:
        """The runs of a subject, newest first."""
        with self._transactions.read() as connection:
            return [_record(row) for row in connection.execute(_of(system, subject).limit(limit))]

    def latest(self, system: str, subject: str, statuses: Sequence[str] = COUNTING) -> RunRecord | None:
        """The newest run that ended in one of these ways."""
        query = _of(system, subject).where(runs.c.status.in_(statuses)).limit(1)
        with self._transactions.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _record(row)

    def abandon_running(self, system: str, subject: str, except_run_id: str | None) -> list[str]:
        """Closes the rows that killed processes left running; only the holder of the lease may call it."""
        left = (runs.c.system == system, runs.c.subject == subject, runs.c.status == RUNNING)
        query = sa.select(runs.c.run_id).where(*left).order_by(runs.c.number).with_for_update()
        with self._transactions.write("run_abandon") as connection:
            ids = [run_id for run_id in connection.scalars(query) if run_id != except_run_id]
            connection.execute(
                sa.update(runs)
                .where(runs.c.run_id.in_(ids), runs.c.status == RUNNING)
                .values(status="abandoned", finished_at=self._clock.now())
            )
        return ids

    def _back(self, system: str, subject: str, steps: int) -> RunRecord:
        query = _of(system, subject).where(runs.c.status.in_(COUNTING)).offset(steps).limit(1)
        with self._transactions.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            ago = "no run that counts yet" if steps == 0 else f"not as many as {steps + 1} runs that count"
            raise UnknownRun(f"{subject}: {ago}. `tidemark history` lists its runs.")
        return _record(row)


def _of(system: str, subject: str) -> sa.Select[Any]:
    where = (runs.c.system == system, runs.c.subject == subject)
    return sa.select(*RECORD).where(*where).order_by(runs.c.number.desc())


def _row(connection: sa.Connection, run_id: str) -> Any:
    return connection.execute(sa.select(*RECORD).where(runs.c.run_id == run_id).with_for_update()).one_or_none()


def _record(row: Any) -> RunRecord:
    return RunRecord(**row._mapping)


def _named(row: Any) -> str:
    return f"a run of {row.system} {row.subject} that is {row.status}"


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
        raise StateError(f"run {run_id} of {found.subject} is {found.status} and cannot be changed any more.")
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
