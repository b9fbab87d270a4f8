"""The parts that every system stands on, opened once per process from the configuration."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import SparkSession

from spark_code.lake import Lake
from spark_code.session import session_config, start_session
from tidemark.clock import Clock, SystemClock
from tidemark.config import Config
from tidemark.control import ControlDatabase
from tidemark.lake import LakeReader, LakeSettings, lake_settings
from tidemark.store import ObjectStore, open_store


@dataclass(frozen=True)
class Platform:
    """Store, control database, lake and clock. Nothing is opened before it is used; Spark last of all."""

    config: Config
    start: Callable[[dict[str, str]], SparkSession] = start_session
    clock: Clock = field(default_factory=SystemClock)

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
    def spark(self) -> SparkSession:
        return self.start(session_config(self.config.spark, self.lake_settings))

    @cached_property
    def lake(self) -> Lake:
        return Lake(lambda: self.spark, LakeReader(self.lake_settings))
