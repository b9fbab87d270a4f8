"""Tidemark's platform as a Dagster resource."""

from pathlib import Path

from dagster import ConfigurableResource
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from spark_code.platform import Platform
from spark_code.session import prepare_environment
from tidemark.config import load_config

# One platform per configuration file and process: its Spark session and its database connections are shared.
_opened: dict[Path, Platform] = {}


def open_platform(path: str | None = None) -> Platform:
    config = load_config(Path(path) if path else None)
    found = _opened.get(config.path)
    return found if found and found.config == config else share_platform(Platform(config, lazy_session))


def share_platform(platform: Platform) -> Platform:
    """From now on this is the platform of its configuration file."""
    _opened[platform.config.path] = platform
    return platform


def lazy_session(settings: dict[str, str]) -> SparkSession:
    """The session as dagster-pyspark makes it: on first use, and the same one for everybody in the process."""
    if "spark.remote" not in settings:
        prepare_environment()
    session: SparkSession = LazyPySparkResource(spark_config=settings).spark_session
    return session


class PlatformResource(ConfigurableResource["PlatformResource"]):
    """The platform that `tidemark.yaml` describes. No path: `TIDEMARK_CONFIG`, or the file in this folder."""

    config_path: str = ""

    @property
    def platform(self) -> Platform:
        return open_platform(self.config_path or None)
