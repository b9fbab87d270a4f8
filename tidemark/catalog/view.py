"""What is published of a connection, and its marker, for those who only look: no Spark, and no source."""

from dataclasses import dataclass

from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.marker import MarkerFile
from tidemark.catalog.published import Published, read_published
from tidemark.config import Connection
from tidemark.control import ControlDatabase
from tidemark.lake import LakeReader
from tidemark.platform import Platform
from tidemark.store import ObjectStore


@dataclass(frozen=True)
class CatalogView:
    """A connection together with the places where its state, mark and runs are kept."""

    platform: Platform
    connection: Connection

    @property
    def name(self) -> str:
        return self.connection.name

    @property
    def address(self) -> str:
        return self.connection.address

    @property
    def store(self) -> ObjectStore:
        return self.platform.store

    @property
    def control(self) -> ControlDatabase:
        return self.platform.control

    @property
    def reader(self) -> LakeReader:
        return self.platform.reader

    @property
    def layout(self) -> CatalogLayout:
        return CatalogLayout(self.connection.app, self.connection.id)

    @property
    def marker(self) -> MarkerFile:
        return MarkerFile(self.store, self.layout.marker)

    def published(self) -> Published:
        return read_published(self.reader, self.control, self.layout, self.address)
