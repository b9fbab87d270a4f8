"""Tidemark's platform as a Dagster resource."""

from functools import lru_cache
from pathlib import Path

from dagster import ConfigurableResource
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from spark_code.platform import Platform
from spark_code.session import prepare_environment
from tidemark.config import load_config


@lru_cache(maxsize=8)
def open_platform(path: str | None) -> Platform:
    """One platform per configuration file and process: its Spark session and database connections are shared."""
    config = load_config(Path(path) if path else None)
    return Platform(config, lazy_session)


def lazy_session(settings: dict[str, str]) -> SparkSession:
    """The session as dagster-pyspark makes it: on first use, and the same one for everybody in the process."""
    prepare_environment()
    session: SparkSession = LazyPySparkResource(spark_config=settings).spark_session
    return session


class PlatformResource(ConfigurableResource[Platform]):
    """The platform that `tidemark.yaml` describes. `config_path` empty: `TIDEMARK_CONFIG`, or the file in this folder."""

    config_path: str = ""

    @property
    def platform(self) -> Platform:
        return open_platform(self.config_path or None)
