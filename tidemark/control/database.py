"""The control database as one object: the ledger of runs, the marks, the leases."""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from tidemark.address import Address
from tidemark.clock import Clock, SystemClock
from tidemark.control.leases import Leases
from tidemark.control.marks import Marks
from tidemark.control.runs import RunLedger
from tidemark.control.sealing import Keyring
from tidemark.control.state_keys import read_keyring
from tidemark.control.transactions import Transactions
from tidemark.errors import RowSecurityOff


class ControlDatabase:
    """Where progress is recorded; opened and migrated on first use, and picklable until and after then."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._transactions = Transactions(url)
        self._clock = clock or SystemClock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transactions!r})"

    @property
    def runs(self) -> RunLedger:
        """One row for every run of any subject."""
        return RunLedger(self._transactions, self._clock)

    @property
    def marks(self) -> Marks:
        """How far each subject has got that belongs to no tenant, and who moved its mark."""
        return Marks(self._transactions, self._clock)

    def sealed_marks(self, tenant: str, keyring: Keyring | None = None) -> Marks:
        """The marks of one tenant's streams; asks for the keys at once, not when the work to record is done."""
        keys = keyring or read_keyring(self._transactions.sqlite_folder)
        return Marks(self._transactions, self._clock, tenant, keys)

    @property
    def leases(self) -> Leases:
        """One run of a subject at a time."""
        return Leases(self._transactions, self._clock)

    @property
    def exists(self) -> bool:
        """Whether anything was recorded yet. To ask, or to read, creates nothing."""
        return self._transactions.patiently(self._transactions.exists)

    def forget(self, subject: str, *, newest: int, before: datetime, kept: Collection[str]) -> tuple[int, int]:
        """Removes old runs of a subject from the ledger, and the values that its mark had before those that stay.

        A run stays if it is among the newest, or ended since then, or is to be kept. Returns how many of both were removed.
        """
        removed = self.runs.forget(subject, newest=newest, before=before, kept=kept)
        oldest = self.runs.oldest_begin(subject, newest=newest, kept=kept)
        marks = Marks(self._transactions, self._clock, Address.tenant_of(subject))
        return removed, marks.forget(subject, before=min(before, oldest) if oldest else before)

    def migrate(self) -> None:
        """To the newest schema; a database that is newer than this code is refused by name."""
        self._transactions.migrate()

    def require_row_security(self) -> None:
        """Refuses a role of PostgreSQL that row-level security does not hold for; SQLite has neither."""
        rights = sa.text("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")

        def look(connection: sa.Connection) -> tuple[bool, bool]:
            if connection.dialect.name != "postgresql":
                return False, False
            row = connection.execute(rights).one()
            return bool(row.rolsuper), bool(row.rolbypassrls)

        is_superuser, bypasses = self._transactions.read(look)
        if is_superuser or bypasses:
            what = "a superuser" if is_superuser else "a role with BYPASSRLS"
            raise RowSecurityOff(
                f"the control database is used as {what}, so row-level security does not keep tenants apart. Create a role "
                "with NOSUPERUSER NOBYPASSRLS that owns Tidemark's tables, and put it into `control:`."
            )

    def close(self) -> None:
        """Lets go of the connections; the next use opens new ones."""
        self._transactions.close()
