"""The parts that every system stands on, opened from the configuration when they are first used."""

from dataclasses import dataclass, field
from functools import cached_property

from tidemark.clock import Clock, SystemClock
from tidemark.config import Config
from tidemark.control import ControlDatabase
from tidemark.lake import LakeReader, LakeSettings, lake_settings
from tidemark.store import ObjectStore, open_store


@dataclass(frozen=True)
class Platform:
    """Store, control database, the lake's metadata and the clock. Nothing is opened before it is used."""

    config: Config
    clock: Clock = field(default_factory=SystemClock, kw_only=True)
    # Whether nothing of the lake is to be written through it.
    only_reads: bool = field(default=False, kw_only=True)

    @cached_property
    def store(self) -> ObjectStore:
        settings = self.config.store
        store = open_store(settings.url, endpoint=settings.endpoint, region=settings.region)
        if settings.folder is None:
            # Some look-alikes of S3 accept conditions and ignore them: such a store would lose marks.
            store.probe()
        return store

    @cached_property
    def control(self) -> ControlDatabase:
        return ControlDatabase(self.config.control, self.clock)

    @cached_property
    def lake_settings(self) -> LakeSettings:
        return lake_settings(self.config)

    @cached_property
    def reader(self) -> LakeReader:
        settings = self.lake_settings
        return LakeReader(settings.only_to_read() if self.only_reads else settings)
