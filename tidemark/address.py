"""The address of a subject: one name for it in ledger, marks, leases, logs and commands."""

from dataclasses import dataclass

from tidemark.errors import UsageError
from tidemark.store.keys import checked_id

CATALOG, STREAM, MODEL = "catalog", "stream", "model"
SYSTEMS = (CATALOG, STREAM, MODEL, "feed", "workflow")

FORM = "catalog/CONNECTION, stream/TENANT/CONNECTOR/STREAM, model/SCHEMA.TABLE, feed/FEED or workflow/WORKFLOW"


@dataclass(frozen=True, slots=True)
class Address:
    """The system that a subject belongs to, and its name there."""

    system: str
    name: str

    def __str__(self) -> str:
        return f"{self.system}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address that a text spells; `UsageError` names the form."""
        system, _, name = text.partition("/")
        parts = name.split("/")
        if system not in SYSTEMS or not all(parts) or len(parts) != (3 if system == STREAM else 1):
            raise UsageError(f"{text[:300]!r} is no address. Write it as {FORM}.")
        if system == STREAM:
            return cls.stream(*parts)
        return cls.model(name) if system == MODEL else cls(system, checked_id(name, system))

    @classmethod
    def catalog(cls, name: str) -> "Address":
        return cls(CATALOG, checked_id(name, "connection"))

    @classmethod
    def stream(cls, tenant: str, connector: str, stream: str) -> "Address":
        ids = (checked_id(tenant, "tenant"), checked_id(connector, "connector"), checked_id(stream, "stream"))
        return cls(STREAM, "/".join(ids))

    @classmethod
    def model(cls, name: str) -> "Address":
        # A model's name becomes no part of a path, and may hold whatever a table's name can.
        return cls(MODEL, name)

    @staticmethod
    def tenant_of(text: str) -> str | None:
        """Whose subject it is, of any system; None for what belongs to no tenant."""
        system, _, name = text.partition("/")
        return name.partition("/")[0] if system == STREAM else None

    @property
    def tenant(self) -> str | None:
        """Whose stream it is; None for what belongs to no tenant."""
        return self.name.partition("/")[0] if self.system == STREAM else None
