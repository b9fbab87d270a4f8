"""Where a stream of a tenant lives: its table in the lake, its objects in the store, its name in ledger and leases."""

import re
from dataclasses import dataclass

from tidemark.address import Address


@dataclass(frozen=True, slots=True)
class StreamPlace:
    tenant: str
    connector: str
    stream: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.connector}/{self.stream}"

    @property
    def address(self) -> str:
        """What runs, marks and leases of the stream are filed under."""
        return str(Address.stream(self.tenant, self.connector, self.stream))

    @property
    def table(self) -> str:
        """The Bronze table. A manifest refuses two streams whose names come out the same."""
        return ".".join(["bronze", *(plain(part) for part in (self.tenant, self.connector, self.stream))])

    @property
    def quarantine(self) -> str:
        return f"{self.table}__quarantine"

    @property
    def latest(self) -> str:
        return f"{self.table}__latest"

    @property
    def changes(self) -> str:
        return f"{self.table}__changes"

    @property
    def root(self) -> str:
        return f"tenants/{self.tenant}/connectors/{self.connector}/streams/{self.stream}"

    def run(self, run_id: str) -> str:
        return f"{self.root}/runs/{run_id}"


def plain(text: str) -> str:
    """An id as a name that SQL needs no quotes for. Whoever takes ids refuses two that come out the same."""
    name = re.sub(r"[^a-z0-9]", "_", text.lower())
    return f"_{name}" if name[0].isdecimal() else name
