"""The Dagster instance that the command line and the web UI share."""

import os
from pathlib import Path

from dagster import DagsterInstance

from tidemark.config import Config

# The first visit to the web UI shows no dialog, and nothing is reported anywhere. Of one connection, one run at a time.
# Runs that a schedule or a sensor started ask to be tried again; no others are.
SETTINGS = """telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    tag_concurrency_limits:
      - key: dagster/partition
        value:
          applyLimitPerUniqueValue: true
        limit: 1
run_retries:
  enabled: true
  max_retries: 0
"""


def dagster_home(config: Config) -> Path:
    """`dagster-home` of the configuration, or DAGSTER_HOME, or a folder beside the state."""
    if config.dagster_home:
        return config.dagster_home
    if os.environ.get("DAGSTER_HOME"):
        return Path(os.environ["DAGSTER_HOME"])
    beside = config.store.folder or config.path.resolve().parent / ".tidemark"
    return beside / "dagster"


def prepare_home(config: Config) -> Path:
    """Makes the folder and its dagster.yaml; one that is there is left as it is. Later imports find both."""
    home = dagster_home(config)
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(SETTINGS)
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["TIDEMARK_CONFIG"] = str(config.path.resolve())
    return home


def open_instance(config: Config) -> DagsterInstance:
    prepare_home(config)
    return DagsterInstance.get()
