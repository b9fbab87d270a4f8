"""`tidemark maintain|doctor|ui`: the platform at a shell."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark.cli.app import AsJson, ConfigFile
from tidemark.cli.output import console, print_json, print_table
from tidemark.config import Config, load_config
from tidemark.errors import TidemarkError

WORKSPACE = """load_from:
  - python_module:
      module_name: platform_assets.definitions
      location_name: tidemark
"""


def register(app: typer.Typer) -> None:
    for command in (maintain, doctor, ui):
        app.command()(command)


def maintain(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CONNECTION|TENANT/CONNECTOR/STREAM…]", help="Default: all.")
    ] = None,
    keep_runs: Annotated[int, typer.Option(min=1, help="Runs whose state can still be read and rolled back to.")] = 50,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Compact the lake's files, forget old snapshots, remove files that nothing refers to."""
    loaded = load_config(config)
    from spark_code.platform import Platform
    from spark_code.upkeep import keepers

    upkeep = keepers(Platform(loaded), names)
    done = {name: keep(keep_runs) for name, keep in upkeep.items()}
    if as_json:
        print_json(done)
        return
    for name, facts in done.items():
        print_table(name, ["what", "now"], facts.items())


def doctor(as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Look at everything Tidemark stands on and say what is wrong and what to do. Exit code 1 if something is."""
    loaded = load_config(config)
    examined = [examine(name, look) for name, look in looks(loaded)]
    if as_json:
        print_json([dict(zip(("what", "well", "why"), row, strict=True)) for row in examined])
    else:
        print_table("doctor", ["what", "status", "why"], [[w, "well" if ok else "ILL", why] for w, ok, why in examined])
    if not all(well for _, well, _ in examined):
        raise typer.Exit(1)


def examine(name: str, look: Callable[[], str]) -> tuple[str, bool, str]:
    try:
        return name, True, look()
    except TidemarkError as error:
        return name, False, f"{type(error).__name__}: {error}"


def looks(config: Config) -> list[tuple[str, Callable[[], str]]]:
    """What there is to look at, each with a function that says what it found or raises a named error."""
    from spark_code.java import java_home, java_version
    from spark_code.platform import Platform
    from spark_code.session import cache_folder, coordinates, jar_config
    from tidemark.catalog.packs.base import pack_for
    from tidemark.catalog.scope import Scope

    platform = Platform(config)

    def java() -> str:
        home = java_home(cache_folder())
        return f"version {java_version(home / 'bin' / 'java')}"

    def jars() -> str:
        wanted = coordinates(platform.lake_settings)
        there = "spark.jars" in jar_config(wanted, cache_folder())
        return f"{len(wanted)} jars " + ("on disk" if there else "will be fetched when Spark first starts")

    def store() -> str:
        platform.store.probe()
        return platform.store.root

    def control() -> str:
        platform.control.migrate()
        return "reachable and up to date"

    def lake() -> str:
        platform.lake.reader.published("catalog.none")
        return platform.lake_settings.warehouse

    def source(connection: Any) -> Callable[[], str]:
        def look() -> str:
            listing = pack_for(connection.app, connection.resolved_url()).listing(
                Scope(connection.include, connection.exclude)
            )
            hidden = [schema.name for schema in listing.schemas if not schema.listed]
            return f"{len(listing.tables)} tables" + (f"; cannot list {', '.join(hidden)}" if hidden else "")

        return look

    sources = [(f"connection {name}", source(connection)) for name, connection in config.connections.items()]
    return [("java", java), ("jars", jars), ("store", store), ("control database", control), ("lake", lake), *sources]


def ui(
    port: Annotated[int, typer.Option(help="The port of the web UI.")] = 3000,
    host: Annotated[str, typer.Option(help="The address it listens on.")] = "127.0.0.1",
    config: ConfigFile = None,
) -> None:
    """Open Dagster's web UI with schedules and sensors, on the runs that the command line made as well."""
    loaded = load_config(config)
    from platform_assets.instance import prepare_home

    home = prepare_home(loaded)
    workspace = home / "workspace.yaml"
    workspace.write_text(WORKSPACE)
    console.print(f"http://{host}:{port} — stop with Ctrl-C", highlight=False)
    sys.stdout.flush()
    dagster = Path(sys.executable).with_name("dagster")
    os.execv(dagster, [str(dagster), "dev", "-w", str(workspace), "-h", host, "-p", str(port)])
