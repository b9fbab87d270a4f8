"""`tidemark doctor|ui|metrics`: the platform at a shell."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from platform_assets.doctor import doctor
from platform_assets.metrics import metrics
from tidemark.cli.listening import require_free
from tidemark.cli.options import ConfigFile
from tidemark.cli.output import print_line
from tidemark.config import load_config
from tidemark.terminal import give_back

WORKSPACE = """load_from:
  - python_module:
      module_name: platform_assets.definitions
      location_name: tidemark
"""


def register(app: typer.Typer) -> None:
    for command in (doctor, ui, metrics):
        app.command()(command)


def ui(
    port: Annotated[int, typer.Option(help="The port of the web UI.")] = 3000,
    host: Annotated[str, typer.Option(help="The address it listens on.")] = "127.0.0.1",
    config: ConfigFile = None,
) -> None:
    """Open Dagster's web UI with schedules and sensors, on the runs that the command line made as well."""
    loaded = load_config(config)
    require_free(host, port, "tidemark ui --port")
    from platform_assets.instance import dagster_home, open_instance

    # Web server and daemon begin together; neither is to create the files that both open.
    open_instance(loaded).dispose()
    workspace = dagster_home(loaded) / "workspace.yaml"
    workspace.write_text(WORKSPACE)
    print_line(f"http://{host}:{port} — stop with Ctrl-C")
    give_back()
    dagster = Path(sys.executable).with_name("dagster")
    os.execv(dagster, [str(dagster), "dev", "-w", str(workspace), "-h", host, "-p", str(port)])
