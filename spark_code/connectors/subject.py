"""A stream of a tenant together with the places where its state, its runs and its table are kept."""

from dataclasses import dataclass
from functools import cached_property

from spark_code.connectors.bronze import BronzeTable
from spark_code.platform import Platform
from tidemark.connectors.contract import CheckpointConnector, Connector
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.manifests import opened_connector
from tidemark.connectors.place import StreamPlace
from tidemark.connectors.stream import StreamSpec
from tidemark.control import StateRegistry
from tidemark.errors import ConfigError


@dataclass(frozen=True)
class StreamSubject:
    """What a run, a rewind or a reader of one stream works with."""

    platform: Platform
    tenant: str
    manifest: Manifest
    described: StreamSpec

    @cached_property
    def stream(self) -> StreamSpec:
        """The stream as it is read: a connector with checkpoints brings the cursor itself."""
        self._refuse_impossible_deletes()
        if not isinstance(self.connector, CheckpointConnector):
            return self.described
        if self.described.cursor is not None:
            kind = self.manifest.kind
            raise ConfigError(f"{self.described.id}: the kind '{kind}' keeps its own progress. Leave `cursor` out.")
        own = {"cursor": self.connector.checkpoint_field, "cursor_type": "text"}
        return self.described.model_copy(update=own)

    def _refuse_impossible_deletes(self) -> None:
        """What the manifest says of deletions must be something that the kind can do."""
        said, connector = self.described.deletes, self.connector
        has_log = isinstance(connector, CheckpointConnector) and connector.has_log
        lists_keys = type(connector).keys is not Connector.keys
        if (
            (said == "log" and not has_log)
            or (said in ("compare", "flag") and has_log)
            or (said == "compare" and not lists_keys)
        ):
            can = ["log"] if has_log else ["none", *(["compare"] if lists_keys else []), "flag"]
            raise ConfigError(
                f"{self.described.id}: the kind '{self.manifest.kind}' cannot find deletions by `{said}`. "
                f"It can: {', '.join(can)}."
            )

    @property
    def place(self) -> StreamPlace:
        return StreamPlace(self.tenant, self.manifest.connector, self.described.id)

    @property
    def name(self) -> str:
        return self.place.subject

    @cached_property
    def registry(self) -> StateRegistry:
        return self.platform.control.streams(self.tenant)

    @cached_property
    def connector(self) -> Connector:
        return opened_connector(self.platform.config, self.manifest, self.tenant)

    def close(self) -> None:
        """Lets go of what the connector holds open at the source, if it was ever used."""
        if "connector" in self.__dict__:
            self.connector.close()

    @property
    def bronze(self) -> BronzeTable:
        return BronzeTable(self.platform.lake, self.place.table)

    @property
    def quarantine(self) -> BronzeTable:
        return BronzeTable(self.platform.lake, self.place.quarantine)
