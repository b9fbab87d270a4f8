"""The control database as one object: the ledger of runs, the marks, the leases, the state of streams."""

from tidemark.clock import Clock, SystemClock
from tidemark.control.leases import Leases
from tidemark.control.marks import Marks
from tidemark.control.runs import RunLedger
from tidemark.control.sealing import Keyring
from tidemark.control.state_keys import read_keyring
from tidemark.control.streams import StateRegistry
from tidemark.control.transactions import Transactions


class ControlDatabase:
    """Where progress is recorded; opened and migrated on first use, and picklable until and after then."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._transactions = Transactions(url)
        self._clock = clock or SystemClock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transactions!r})"

    @property
    def runs(self) -> RunLedger:
        """One row for every run of any system."""
        return RunLedger(self._transactions, self._clock)

    @property
    def marks(self) -> Marks:
        """Where the progress of each subject stands, and who moved it."""
        return Marks(self._transactions, self._clock)

    @property
    def leases(self) -> Leases:
        """One run of a subject at a time."""
        return Leases(self._transactions, self._clock)

    def streams(self, tenant: str, keyring: Keyring | None = None) -> StateRegistry:
        """The state of one tenant's streams; asks for the keys at once, not when the work to record is done."""
        keys = keyring or read_keyring(self._transactions.sqlite_folder)
        return StateRegistry(tenant, self._transactions, self._clock, keys)

    def migrate(self) -> None:
        """To the newest schema; a database that is newer than this code is refused by name."""
        self._transactions.migrate()

    def close(self) -> None:
        """Lets go of the connections; the next use opens new ones."""
        self._transactions.close()
