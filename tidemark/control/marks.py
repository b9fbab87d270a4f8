"""Marks: where the progress of each subject stands, and the audit of every move."""

from dataclasses import dataclass, fields
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tidemark.clock import Clock
from tidemark.control.schema import mark_audit, marks
from tidemark.control.transactions import Transactions
from tidemark.errors import MarkMoved


@dataclass(frozen=True)
class Mark:
    """Where a subject stands; `version` counts its moves."""

    subject: str
    version: int
    value: str
    snapshot: int | None
    run_id: str | None
    moved_at: datetime


@dataclass(frozen=True)
class AuditRow:
    """One move of a mark, written with it and never changed."""

    id: int
    subject: str
    from_version: int | None
    to_version: int
    run_id: str | None
    actor: str
    reason: str
    snapshot: int | None
    at: datetime
    value: str


MARK = [marks.c[field.name] for field in fields(Mark)]
AUDIT_ROW = [mark_audit.c[field.name] for field in fields(AuditRow)]


class Marks:
    """Reads marks, and moves them by compare-and-swap on their version."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def get(self, subject: str) -> Mark | None:
        """The mark of a subject; None if it never had one."""
        with self._transactions.read() as connection:
            row = connection.execute(sa.select(*MARK).where(marks.c.subject == subject)).one_or_none()
        return None if row is None else Mark(**row._mapping)

    def move(
        self,
        subject: str,
        expected_version: int | None,
        value: str,
        *,
        snapshot: int | None,
        run_id: str | None,
        actor: str,
        reason: str,
    ) -> Mark:
        """Moves the mark if it is still at the version expected (None: if there is none yet)."""
        mark = Mark(subject, (expected_version or 0) + 1, value, snapshot, run_id, self._clock.now())
        with self._transactions.write("mark_move") as connection:
            if not _swap(connection, mark, expected_version):
                raise _moved(subject, expected_version)
            connection.execute(
                sa.insert(mark_audit).values(
                    subject=subject,
                    from_version=expected_version,
                    to_version=mark.version,
                    value=value,
                    snapshot=snapshot,
                    run_id=run_id,
                    actor=actor,
                    reason=reason,
                    at=mark.moved_at,
                )
            )
        return mark

    def audit(self, subject: str) -> list[AuditRow]:
        """Every move of the subject's mark, newest first."""
        query = sa.select(*AUDIT_ROW).where(mark_audit.c.subject == subject).order_by(mark_audit.c.to_version.desc())
        with self._transactions.read() as connection:
            return [AuditRow(**row._mapping) for row in connection.execute(query)]


def _swap(connection: sa.Connection, mark: Mark, expected_version: int | None) -> bool:
    values = {field.name: getattr(mark, field.name) for field in fields(Mark)}
    if expected_version is None:
        try:
            connection.execute(sa.insert(marks).values(**values))
        except IntegrityError:  # somebody made the first mark before us
            return False
        return True
    unmoved = (marks.c.subject == mark.subject, marks.c.version == expected_version)
    return connection.execute(sa.update(marks).where(*unmoved).values(**values)).rowcount == 1


def _moved(subject: str, expected_version: int | None) -> MarkMoved:
    expected = "does not exist yet" if expected_version is None else f"is at version {expected_version}"
    return MarkMoved(
        f"{subject}: this run expected that the mark {expected}, and that is so no more: another run moved it first. "
        "Nothing was changed; run again from where it is now."
    )
