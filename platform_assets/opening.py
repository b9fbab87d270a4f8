"""What commands open: the platform of a configuration, one a process, imported when a command needs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.config import Config

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from spark_code.platform import Platform
    from tidemark.runs.system import System


# By configuration file: one a process.
_platforms: "dict[Path, Platform]" = {}


def platform_of(config: Config) -> "Platform":
    """Its Spark session and its database connections are shared by all subjects of a command."""
    found = _platforms.get(config.path)
    if found is None:
        from spark_code.platform import Platform

        found = _platforms[config.path] = Platform(config)
    return found


def subject_of(config: Config, system: "System", name: str) -> Any:
    """The subject that somebody names. A wrong name is refused before Spark's modules are imported."""
    system.chosen(config, [name])
    return system.open(platform_of(config), name)


@contextmanager
def instance_of(config: Config) -> Iterator["DagsterInstance"]:
    """Dagster's instance, for runs in this process."""
    from platform_assets.instance import open_instance
    from resources.platform import platform_with

    # The definitions of the code location take it up: hundreds of connections are parsed once.
    _platforms[config.path] = platform_with(config)
    with open_instance(config) as instance, helpers_in_groups_of_their_own():
        yield instance


@contextmanager
def helpers_in_groups_of_their_own() -> Iterator[None]:
    """Processes that copy a step's output get no Ctrl-C from the terminal: each of them would print a traceback about it.

    Dagster has no setting for it, so what it starts them with is replaced while a command runs.
    """
    import subprocess
    from functools import partial
    from types import SimpleNamespace

    from dagster._core.execution import compute_logs

    module: Any = compute_logs  # what it imports is no part of its types
    before = module.subprocess
    module.subprocess = SimpleNamespace(Popen=partial(subprocess.Popen, process_group=0))
    try:
        yield
    finally:
        module.subprocess = before
