"""The platform with Spark: what systems need beyond metadata, objects and the control database."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from spark_code.lake import Lake
from tidemark import platform
from tidemark.control.files import make_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_session(config: dict[str, str]) -> "SparkSession":
    """Spark's modules are imported by those who use it: a command that only plans is done before they are."""
    from spark_code import session

    return session.start_session(config)


@dataclass(frozen=True)
class Platform(platform.Platform):
    """Store, control database, lake and clock. Nothing is opened before it is used; Spark last of all."""

    start: "Callable[[dict[str, str]], SparkSession]" = start_session

    @cached_property
    def spark(self) -> "SparkSession":
        from spark_code.session import session_config

        catalogue = self.lake_settings.sqlite_file
        if catalogue is not None and not self.config.spark.remote:
            # Before Java creates it, for everybody to read.
            make_private(catalogue)
        return self.start(session_config(self.config.spark, self.lake_settings))

    @cached_property
    def parallelism(self) -> int:
        """How many tasks Spark runs at the same time: what the configuration says, or else Spark. It starts for that, unless
        it is a local one."""
        from spark_code.session import local_tasks, tasks_at_once

        settings = self.config.spark
        return settings.parallelism or local_tasks(settings) or tasks_at_once(self.spark)

    @cached_property
    def lake(self) -> Lake:
        return Lake(lambda: self.spark, self.reader)
