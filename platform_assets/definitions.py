"""All of Tidemark's Dagster definitions."""

import atexit

from dagster import Definitions, in_process_executor

from platform_assets.catalog.definitions import catalog_definitions
from platform_assets.connectors.definitions import ingest_definitions
from platform_assets.housekeeping import shared_definitions
from platform_assets.models.definitions import model_definitions
from platform_assets.system_job import system_definitions
from resources.catalog import CatalogResource, MarkerResource
from resources.connectors import ConnectorsResource
from resources.io_managers import ExtractsIOManager, JsonDiffIOManager, StagedStateIOManager
from resources.models import ModelsResource
from resources.platform import PlatformResource, open_platform
from tidemark import observe
from tidemark.runs.system import systems

config = open_platform(None).config
# For the processes in which Dagster executes runs; the command line has started them by then.
atexit.register(observe.start(config))
platform = PlatformResource()
catalog = CatalogResource(platform=platform)

# The only Definitions of this module: Dagster takes no second one.
defs = Definitions.merge(
    catalog_definitions(config),
    ingest_definitions(config),
    model_definitions(config),
    shared_definitions(config),
    *(system_definitions(each, config) for each in systems().values() if each.run),
    Definitions(
        # One process, one Spark session: a process per step would cost a new JVM each.
        executor=in_process_executor,
        resources={
            "platform": platform,
            "catalog": catalog,
            "connectors": ConnectorsResource(platform=platform),
            "models": ModelsResource(platform=platform),
            "marker_file": MarkerResource(catalog=catalog),
            "extracts": ExtractsIOManager(catalog=catalog),
            "staged_state": StagedStateIOManager(catalog=catalog),
            "json_diff": JsonDiffIOManager(catalog=catalog),
        },
    ),
)
