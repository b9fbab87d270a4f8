"""A stream of a tenant together with the places where its state, its runs and its table are kept."""

from dataclasses import dataclass
from functools import cached_property

from spark_code.connectors.bronze import BronzeTable
from spark_code.platform import Platform
from tidemark.connectors.contract import CheckpointConnector, Connector
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.place import StreamPlace
from tidemark.connectors.registry import connector_for
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
        if not isinstance(self.connector, CheckpointConnector):
            return self.described
        if self.described.cursor is not None:
            kind = self.manifest.kind
            raise ConfigError(f"{self.described.id}: the kind '{kind}' keeps its own progress. Leave `cursor` out.")
        own = {"cursor": self.connector.checkpoint_field, "cursor_type": "text"}
        return self.described.model_copy(update=own)

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
        manifest = self.manifest
        return connector_for(manifest.kind, manifest.resolved_settings(), manifest.resolved_credentials())

    @property
    def bronze(self) -> BronzeTable:
        return BronzeTable(self.platform.lake, self.place.table)

    @property
    def quarantine(self) -> BronzeTable:
        return BronzeTable(self.platform.lake, self.place.quarantine)
