"""`tidemark doctor`: looks at everything that Tidemark stands on."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from tidemark.cli.options import AsJson, ConfigFile
from tidemark.cli.output import print_json
from tidemark.cli.tables import print_table
from tidemark.config import Config
from tidemark.config.loading import read_config
from tidemark.errors import ConfigError, FilesExposed, TidemarkError
from tidemark.findings import Finding

if TYPE_CHECKING:
    from spark_code.platform import Platform
    from tidemark.connectors.manifest import Manifest

Look = Callable[[], str]


def doctor(as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Look at everything Tidemark stands on and say what is wrong and what to do.

    Exit code 1 if something is, 2 if it is the configuration.
    """
    loaded, findings = read_config(config)
    checked = check_configuration(loaded, findings)
    # Without a whole configuration nobody knows where everything is.
    examined = checked + ([] if findings else [examine(name, look) for name, look in looks(loaded)])
    if as_json:
        print_json([dict(zip(("what", "status", "why"), row, strict=True)) for row in examined])
    else:
        print_table("doctor", ["what", "status", "why"], examined)
    if any(status == "failed" for _, status, _ in checked):
        raise typer.Exit(ConfigError.exit_code)
    if any(status == "failed" for _, status, _ in examined):
        raise typer.Exit(1)


def check_configuration(config: Config, findings: Iterable[Finding] = ()) -> list[tuple[str, str, str]]:
    """A row for all that is wrong with the files of the project, or one that says how much there is."""
    from tidemark.config_check import checked

    found = checked(config, findings)
    rows = [("configuration", "failed" if each.severity == "error" else "warning", str(each)) for each in found.findings]
    counts = f"{found.connections} connections, {found.connectors} connectors, {found.models} models"
    return rows or [("configuration", "ok", counts)]


def examine(name: str, look: Look) -> tuple[str, str, str]:
    try:
        return name, "ok", look()
    except TidemarkError as error:
        return name, "failed", f"{type(error).__name__}: {error}"


def looks(config: Config) -> list[tuple[str, Look]]:
    """What there is to look at, each with a function that says what it found or raises a named error."""
    from platform_assets.opening import platform_of

    platform = platform_of(config)
    places: dict[str, Callable[[Platform], str]] = {
        "java": java,
        "jars": jars,
        "store": store,
        "control database": control,
        "keys": keys,
        "lake": lake,
        "Dagster's instance": dagster,
        "file modes": file_modes,
    }
    found: list[tuple[str, Look]] = [(name, partial(look, platform)) for name, look in places.items()]
    found += [(f"connection {name}", source(each)) for name, each in config.connections.items()]
    from tidemark.connectors.manifests import load_manifests

    return [*found, *((f"connector {name}", offers(config, each)) for name, each in load_manifests(config).items())]


def java(_platform: "Platform") -> str:
    from spark_code.java import java_home, java_version
    from spark_code.session import cache_folder

    return f"version {java_version(java_home(cache_folder()) / 'bin' / 'java')}"


def jars(platform: "Platform") -> str:
    from spark_code.session import cache_folder, coordinates, jar_config

    wanted = coordinates(platform.lake_settings)
    there = "spark.jars" in jar_config(wanted, cache_folder())
    return f"{len(wanted)} jars " + ("on disk" if there else "will be fetched when Spark first starts")


def store(platform: "Platform") -> str:
    found = platform.store
    found.probe()
    # No fault: leases keep runs apart. But a process that outlived its lease could delete what another has just written.
    conditions = (
        "yes"
        if found.conditional_deletes
        else ("no: an object is looked at and then deleted, and a write in between is lost. AWS S3 has them")
    )
    return f"{found.root}, conditional deletes: {conditions}"


def control(platform: "Platform") -> str:
    platform.control.migrate()
    platform.control.require_row_security()
    return "reachable and up to date"


def keys(platform: "Platform") -> str:
    if not platform.config.connectors:
        return "none needed: no connectors are configured"
    platform.control.sealed_marks(platform.config.tenants[0])
    return "the keys of state can be read"


def lake(platform: "Platform") -> str:
    platform.reader.published("catalog.none")
    return platform.lake_settings.warehouse


def dagster(platform: "Platform") -> str:
    from platform_assets.instance import open_instance

    with open_instance(platform.config) as instance:
        return f"{instance.get_runs_count():,} runs, settings in {instance.root_directory}"


def file_modes(platform: "Platform") -> str:
    from platform_assets.instance import dagster_home
    from tidemark.private_files import exposed, private_paths

    paths = [path for path in private_paths(platform.config, dagster_home(platform.config)) if path.exists()]
    wide = exposed(paths)
    if wide:
        listed = ", ".join(f"{each.path} ({each.mode:o})" for each in wide)
        advice = "; ".join(each.remedy for each in wide)
        raise FilesExposed(f"others than their owner may use {listed}. Run: {advice}")
    return f"{len(paths)} files and folders are their owner's alone"


def source(connection: Any) -> Look:
    from tidemark.catalog.packs.base import pack_for
    from tidemark.catalog.scope import Scope

    def look() -> str:
        scope = Scope(connection.include, connection.exclude)
        listing = pack_for(connection.app, connection.resolved_url()).listing(scope)
        hidden = [schema.name for schema in listing.schemas if not schema.listed]
        idle = unmatched(connection.include, (f"{each.schema}.{each.name}" for each in listing.tables))
        if idle:
            raise ConfigError(f"include: no table in scope matches {', '.join(idle)}. Fix the pattern, or remove it.")
        return f"{len(listing.tables)} tables" + (f"; cannot list {', '.join(hidden)}" if hidden else "")

    return look


def unmatched(patterns: Sequence[str], tables: Iterable[str]) -> list[str]:
    """The patterns that no table matches. `*` may match none: a source may be empty."""
    left = [pattern for pattern in patterns if pattern != "*"]
    for table in tables if left else ():
        left = [pattern for pattern in left if not fnmatchcase(table, pattern)]
        if not left:
            break
    return left


def offers(config: Config, manifest: "Manifest") -> Look:
    """What the source of a connector offers to its credentials."""
    from tidemark.connectors.manifests import opened_connector

    def look() -> str:
        with opened_connector(config, manifest, config.tenants[0]) as source:
            return f"{len(source.streams())} tables, entities, files or topics; {len(manifest.streams)} streams"

    return look
