"""Where things lie in the object store. Other programs read this layout: it does not move."""

from dataclasses import dataclass

from tidemark.store import checked_id


@dataclass(frozen=True, slots=True)
class CatalogLayout:
    app: str
    connection_id: str

    @property
    def root(self) -> str:
        app, connection = checked_id(self.app, "app"), checked_id(self.connection_id, "connection id")
        return f"persistent-artifacts/apps/{app}/connection/{connection}"

    @property
    def marker(self) -> str:
        return f"{self.root}/marker.txt"

    @property
    def current_state(self) -> str:
        return f"{self.root}/current-state"

    @property
    def manifest(self) -> str:
        return f"{self.current_state}/_manifest.json"

    @property
    def runs(self) -> str:
        return f"{self.root}/runs"

    def run(self, run_id: str) -> str:
        return f"{self.runs}/{checked_id(run_id, 'run id')}"

    def extracted(self, run_id: str) -> str:
        return f"{self.run(run_id)}/extracted"

    def diff(self, run_id: str) -> str:
        return f"{self.run(run_id)}/incremental-diff"

    @property
    def table(self) -> str:
        """The Iceberg table of this connection's state: `catalog.<name>`."""
        plain = "".join(c if c.isalnum() else "_" for c in f"{self.app}_{self.connection_id}".lower())
        return f"catalog.{plain}"
