"""Marks: where the progress of each subject stands, the value of every version, and the audit of every move.

A mark moves by compare-and-swap on its version. Values of subjects that belong to a tenant are sealed before they reach the
database, and such a store belongs to one tenant, so that no query can forget whose rows it may see.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from tidemark.address import STREAM, Address
from tidemark.clock import Clock
from tidemark.control.mark_records import AuditRow, Made, Mark, MarkMoment, Move, Value
from tidemark.control.resealing import Batch, reseal_next
from tidemark.control.runs import RUNNING
from tidemark.control.schema import mark_audit, mark_values, marks, runs
from tidemark.control.sealing import Keyring, Place
from tidemark.control.transactions import Transactions, Write, insert_missing, set_tenant
from tidemark.errors import LeaseLost, MarkMoved, StateError, StateSealBroken, UsageError
from tidemark.store.keys import checked_id

AUDIT_ROW = [mark_audit.c[column.name] for column in fields(AuditRow)]
VALUE_OF_MARK = sa.and_(mark_values.c.subject == marks.c.subject, mark_values.c.version == marks.c.version)
CURRENT = sa.select(marks, mark_values.c.value).select_from(marks.outerjoin(mark_values, VALUE_OF_MARK))

PLAN = 0  # no mark has this version, so a sealed plan never passes for one

Result = TypeVar("Result")


class Marks:
    """Reads marks and moves them: those of one tenant with a keyring, or all that belong to none."""

    def __init__(
        self, transactions: Transactions, clock: Clock, tenant: str | None = None, keyring: Keyring | None = None
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._tenant = "" if tenant is None else checked_id(tenant, "tenant")
        self._keyring = keyring

    def __repr__(self) -> str:
        whose = f"{self._tenant!r}, " if self._tenant else ""
        return f"{type(self).__name__}({whose}{self._transactions!r}, {self._keyring!r})"

    # --- reading -------------------------------------------------------------------------------------------------------

    def get(self, subject: str) -> Mark | None:
        """The mark of a subject; None if it never had one or was reset: the next run reads everything."""
        query = CURRENT.where(marks.c.subject == self._own(subject), marks.c.has_value)
        row = self._read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else self._mark(row)

    def version(self, subject: str) -> int:
        """How often the mark has moved, resets included; 0 if it never did."""
        query = sa.select(marks.c.version).where(marks.c.subject == self._own(subject))
        return self._read(lambda connection: connection.execute(query).scalar()) or 0

    def list(self, prefix: str = "") -> Sequence[Mark]:
        """The marks of all subjects below a prefix of whole parts, such as `stream/t1/shop`; sorted by subject."""
        query = CURRENT.where(marks.c.has_value, marks.c.tenant == self._tenant)
        if prefix:
            folder = prefix.removesuffix("/") + "/"
            # Not LIKE: SQLite's takes upper and lower case for the same, and both know wildcards.
            query = query.where(sa.func.substr(marks.c.subject + "/", 1, len(folder)) == folder)
        rows = self._read(lambda connection: connection.execute(query).all())
        return [self._mark(row) for row in sorted(rows, key=lambda row: str(row.subject))]

    def moments(self, tenants: Sequence[str] = ()) -> Sequence[MarkMoment]:
        """When the mark of every subject moved last, sealed ones included: no value is read, so no key is needed.

        PostgreSQL shows the marks of a tenant only to a transaction of that tenant: they are requested one by one.
        """
        columns = (marks.c.subject, marks.c.version, marks.c.moved_at)
        query = sa.select(*columns).where(marks.c.has_value)

        def all_of_them(connection: sa.Connection) -> list[Any]:
            if connection.dialect.name != "postgresql":
                return list(connection.execute(query.where(marks.c.tenant.in_(["", *tenants]))))
            found: list[Any] = []
            for tenant in ("", *tenants):
                set_tenant(connection, tenant)
                found += connection.execute(query.where(marks.c.tenant == tenant)).all()
            return found

        rows = self._transactions.read(all_of_them)
        return [MarkMoment(*row) for row in sorted(rows, key=lambda row: str(row.subject))]

    def value_of(self, subject: str, version: int) -> str:
        """The value that the mark had at a version."""
        own = self._own(subject)
        return self._read(lambda connection: self._value(connection, own, version)).text

    def audit(self, subject: str, limit: int | None = None) -> Sequence[AuditRow]:
        """Every move of the subject's mark, newest first; or only so many."""
        query = sa.select(*AUDIT_ROW).where(mark_audit.c.subject == self._own(subject))
        query = query.order_by(mark_audit.c.to_version.desc()).limit(limit)
        return self._read(lambda connection: [AuditRow(**row._mapping) for row in connection.execute(query)])

    # --- moving --------------------------------------------------------------------------------------------------------

    def move(
        self,
        subject: str,
        expected_version: int | None,
        value: str,
        *,
        field: str | None = None,
        snapshot: int | None = None,
        run_id: str | None,
        actor: str,
        reason: str,
    ) -> Mark:
        """Moves the mark if it is still at the version expected (None: if there is none yet, or it was reset)."""

        def target(_connection: sa.Connection, row: Any) -> tuple[Value, Move]:
            if expected_version != row.version and not (expected_version is None and not row.has_value):
                raise _moved(subject, expected_version)
            return Value(value, field), Move("commit", actor, reason, run_id, snapshot)

        return self._marked(self._move("mark_move", subject, target))

    def rewind(
        self,
        subject: str,
        *,
        to_version: int | None = None,
        to_value: str | None = None,
        expected_version: int | None = None,
        snapshot: int | None = None,
        run_id: str | None = None,
        actor: str,
        reason: str,
    ) -> Mark:
        """Makes a new version that holds the value of an older one, or a value given: the next run reads on from there.

        The snapshot stays the one that the mark has, unless another is given: a rewind does not touch the state. With
        `expected_version`, only if the mark is still at that version.
        """
        _given(reason, f"rewind {subject}")
        if (to_version is None) == (to_value is None):
            raise UsageError(f"rewind {subject} either to a version or to a value.")

        def target(connection: sa.Connection, row: Any) -> tuple[Value, Move]:
            if not row.version:
                raise UsageError(f"{subject} has no mark: there is nothing to rewind.")
            if expected_version is not None and expected_version != row.version:
                raise _moved(subject, expected_version)
            if to_version is not None:
                value = self._value(connection, subject, to_version)
            else:
                value = Value(str(to_value), _newest_field(connection, subject))
            kept = row.snapshot if snapshot is None else snapshot
            return value, Move("rewind", actor, reason, run_id, kept, to_version)

        return self._marked(self._move("mark_rewind", subject, target))

    def reset(
        self, subject: str, *, expected_version: int | None = None, run_id: str | None = None, actor: str, reason: str
    ) -> int:
        """Takes the mark away, so that the next run reads everything; returns the version that counts this move."""
        _given(reason, f"reset {subject}")

        def target(_connection: sa.Connection, row: Any) -> tuple[None, Move]:
            if not row.has_value:
                raise UsageError(f"{subject} has no mark: there is nothing to reset, the next run reads everything anyway.")
            if expected_version is not None and expected_version != row.version:
                raise _moved(subject, expected_version)
            return None, Move("reset", actor, reason, run_id)

        return self._move("mark_reset", subject, target).version

    def forget(self, subject: str, *, before: datetime) -> int:
        """Removes the values of versions that were no longer current then; returns how many. Their audit rows stay."""
        own = self._own(subject)
        then = sa.select(sa.func.max(mark_audit.c.to_version)).where(mark_audit.c.subject == own, mark_audit.c.at <= before)

        def remove(connection: sa.Connection, _repeated: bool) -> int:
            current = connection.execute(then).scalar() or 0
            old = (mark_values.c.subject == own, mark_values.c.version < current)
            return connection.execute(sa.delete(mark_values).where(*old)).rowcount

        return self._write(remove, "mark_forget")

    # --- sealing -------------------------------------------------------------------------------------------------------

    def seal(self, subject: str, text: str) -> str:
        """Text of a run that holds values of marks, such as its plan, in a form that only this subject's keys open."""
        return self._sealed(text, Place(self._own(subject), PLAN))

    def open(self, subject: str, sealed: str) -> str:
        """What `seal` was given."""
        return self._opened(sealed, Place(self._own(subject), PLAN))

    def reseal(self) -> int:
        """Re-seals every value of the tenant that the newest key has not sealed; returns how many.

        Works in small transactions: stopped half-way it goes on from there the next time. Values that do not open are
        left as they are and named at the end, so that one broken value does not keep the others at an old key.
        """
        if self._keyring is None:
            return 0
        keyring, done = self._keyring, 0
        after: Place | None = None
        broken: list[StateError] = []
        while True:
            batch = self._reseal_batch(keyring, after)
            done, after = done + batch.done, batch.last
            broken += batch.broken
            if after is None:
                break
        if broken:
            raise type(broken[0])(f"{done} values were re-sealed and {len(broken)} were left; the first: {broken[0]}")
        return done

    def _reseal_batch(self, keyring: Keyring, after: Place | None) -> Batch:
        return self._write(lambda connection, _: reseal_next(connection, self._tenant, keyring, after), "mark_reseal")

    # --- parts ---------------------------------------------------------------------------------------------------------

    def _own(self, subject: str) -> str:
        """The subject, if its mark is kept here."""
        if not self._tenant:
            if subject.startswith(f"{STREAM}/"):
                raise UsageError(f"{subject} belongs to a tenant: its mark is among the sealed marks of that tenant only.")
        elif Address.parse(subject).tenant != self._tenant:
            raise UsageError(f"{subject} is no stream of tenant '{self._tenant}'.")
        return subject

    def _read(self, work: Callable[[sa.Connection], Result]) -> Result:
        def of_tenant(connection: sa.Connection) -> Result:
            set_tenant(connection, self._tenant)
            return work(connection)

        return self._transactions.read(of_tenant)

    def _write(self, work: Write[Result], effect: str) -> Result:
        def of_tenant(connection: sa.Connection, repeated: bool) -> Result:
            set_tenant(connection, self._tenant)
            return work(connection, repeated)

        return self._transactions.write(of_tenant, effect)

    def _move(self, effect: str, subject: str, target: Callable[[sa.Connection, Any], tuple[Value | None, Move]]) -> Made:
        """Writes mark, value and audit row of what `target` decides, given the row as it is; that row is locked."""
        own, at = self._own(subject), self._clock.now()
        made: Made | None = None

        def attempt(connection: sa.Connection, repeated: bool) -> Made:
            nonlocal made
            row = self._locked_row(connection, own)
            if repeated and made is not None and _is_recorded(connection, made):
                return made  # the commit that got no answer was made
            value, move = target(connection, row)
            if move.run_id is not None:
                _require_open(connection, own, move.run_id)
            made = Made(own, row.version or None, row.version + 1, value, move, at)
            self._record(connection, made)
            return made

        return self._write(attempt, effect)

    def _locked_row(self, connection: sa.Connection, subject: str) -> Any:
        """The subject's row, made if need be, which nobody else can change until the transaction ends."""
        row = {"subject": subject, "tenant": self._tenant, "version": 0, "has_value": False}
        insert_missing(connection, marks, {**row, "moved_at": self._clock.now()})
        return connection.execute(sa.select(marks).where(marks.c.subject == subject).with_for_update()).one()

    def _record(self, connection: sa.Connection, made: Made) -> None:
        value, move = made.value, made.move
        connection.execute(
            sa.update(marks)
            .where(marks.c.subject == made.subject)
            .values(
                version=made.version,
                has_value=value is not None,
                field=value.of if value else None,
                snapshot=move.snapshot,
                run_id=move.run_id,
                moved_at=made.at,
            )
        )
        whose = {"subject": made.subject, "tenant": self._tenant}
        if value is not None:
            text = self._sealed(value.text, Place(made.subject, made.version))
            kept = {**whose, "version": made.version, "field": value.of, "value": text}
            connection.execute(sa.insert(mark_values).values(**kept))
        versions = {"from_version": made.before, "to_version": made.version}
        connection.execute(sa.insert(mark_audit).values(**whose, **versions, **asdict(move), at=made.at))

    def _marked(self, made: Made) -> Mark:
        value, move = made.value, made.move
        assert value is not None, "only a reset has none"
        return Mark(made.subject, made.version, value.text, value.of, move.snapshot, move.run_id, made.at)

    def _mark(self, row: Any) -> Mark:
        place = Place(row.subject, row.version)
        if row.value is None:  # else a lost value would pass for a reset
            raise StateSealBroken(f"{place}: its value is missing. Restore the control database, or reset the mark.")
        value = self._opened(row.value, place)
        return Mark(row.subject, row.version, value, row.field, row.snapshot, row.run_id, row.moved_at)

    def _value(self, connection: sa.Connection, subject: str, version: int) -> Value:
        query = sa.select(mark_values).where(mark_values.c.subject == subject, mark_values.c.version == version)
        row = connection.execute(query).one_or_none()
        if row is None:
            raise UsageError(
                f"{subject} has no value of version {version}: the commits and rewinds in its history have one, until "
                "upkeep removes those that no kept run needs."
            )
        return Value(self._opened(row.value, Place(subject, version)), row.field)

    def _sealed(self, text: str, place: Place) -> str:
        return text if self._keyring is None else self._keyring.seal(text, place)

    def _opened(self, text: str, place: Place) -> str:
        return text if self._keyring is None else self._keyring.open(text, place)


def _require_open(connection: sa.Connection, subject: str, run_id: str) -> None:
    """A run that another has closed moves nothing any more, whenever its process wakes up. The row is locked: it is not
    closed before this transaction has ended. Marks that no run of the ledger moves are not asked."""
    of_run = (runs.c.subject == subject, runs.c.run_id == run_id)
    status = connection.execute(sa.select(runs.c.status).where(*of_run).with_for_update()).scalar()
    if status not in (None, RUNNING):
        raise LeaseLost(f"{subject}: run {run_id} was closed by another that took over. It moved no mark; run again.")


def _is_recorded(connection: sa.Connection, made: Made) -> bool:
    """Whether the move of an earlier attempt is in the audit: nobody else writes its moment, actor, run and reason."""
    move = made.move
    said = {"kind": move.kind, "run_id": move.run_id, "actor": move.actor, "reason": move.reason, "at": made.at}
    row = sa.select(mark_audit).where(mark_audit.c.subject == made.subject, mark_audit.c.to_version == made.version)
    found = connection.execute(row).one_or_none()
    return found is not None and {name: found._mapping[name] for name in said} == said


def _newest_field(connection: sa.Connection, subject: str) -> str | None:
    query = sa.select(mark_values.c.field).where(mark_values.c.subject == subject)
    return connection.execute(query.order_by(mark_values.c.version.desc()).limit(1)).scalar()


def _given(reason: str, what: str) -> None:
    if not reason.strip():
        raise UsageError(f"{what}: say why. The reason stays in the history of the mark.")


def _moved(subject: str, expected_version: int | None) -> MarkMoved:
    expected = "there was no mark yet" if not expected_version else f"the mark was at version {expected_version}"
    return MarkMoved(
        f"{subject}: when this run began {expected}, but another run or a person has moved it since. "
        "Nothing was changed; run again from where it is now."
    )
