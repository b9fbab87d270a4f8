"""Tidemark's platform as a Dagster resource."""

from pathlib import Path

from dagster import ConfigurableResource, InitResourceContext
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from resources.tags import process_of, process_tag
from spark_code.platform import Platform
from spark_code.session import prepare_environment
from tidemark.config import Config, config_path, load_config

# One platform per configuration file and process: its Spark session and its database connections are shared.
_opened: dict[Path, Platform] = {}
# The file as it was when its platform was opened: parsing hundreds of connections takes longer than most steps.
_read_at: dict[Path, tuple[int, int, int]] = {}


def open_platform(path: str | None = None) -> Platform:
    """The platform of a configuration file; the file is parsed once, and again when it has changed."""
    file = config_path(Path(path) if path else None).absolute()
    if file in _opened and _read_at.get(file) == _stamp(file):
        return _opened[file]
    stamp, config = _stamp(file), load_config(file)
    platform = platform_with(config)
    _read_at[file] = stamp
    return platform


def platform_with(config: Config) -> Platform:
    """The platform of a configuration that was just read; from now on that of its file."""
    found = _opened.get(config.path)
    return share_platform(found if found and found.config == config else Platform(config, start=lazy_session))


def share_platform(platform: Platform) -> Platform:
    """From now on this is the platform of its configuration file."""
    _opened[platform.config.path] = platform
    _read_at[platform.config.path] = _stamp(platform.config.path)
    return platform


def _stamp(file: Path) -> tuple[int, int, int]:
    """What differs whenever the file was written."""
    try:
        status = file.stat()
    except OSError:
        return (0, 0, 0)  # `load_config` says what is wrong with it
    return status.st_mtime_ns, status.st_ino, status.st_size


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

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """A run says which process executes it, so that `close_dead_runs` can see when that is gone."""
        run = context.run
        if run and context.instance and process_of(run.run_id, run.tags) is None:
            context.instance.add_run_tags(run.run_id, process_tag(run.run_id))
