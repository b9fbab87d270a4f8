"""A project of models over a real Bronze, and Dagster that runs it."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetSelection,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
    define_asset_job,
    in_process_executor,
)

from platform_assets.connectors.definitions import ingest_definitions
from platform_assets.launch import QUIET
from platform_assets.models.assets import op_name
from platform_assets.models.definitions import model_definitions
from platform_assets.models.metadata import model_key
from resources.connectors import ConnectorsResource
from resources.models import ModelsResource
from resources.platform import PlatformResource, share_platform
from spark_code.connectors.run import IngestRun
from spark_code.connectors.subject import StreamSubject
from spark_code.platform import Platform
from tests.catalog.harness import SparkForTests
from tests.models.folder import Folder
from tidemark.config import load_config
from tidemark.connectors.manifests import find_manifest


class Running(Folder):
    """Deliveries arrive as files, land in Bronze, and models are made of them."""

    def __init__(self, path: Path, spark: SparkForTests) -> None:
        super().__init__(path)
        (path / "in").mkdir()
        manifest = path / "drops.connector.yaml"
        manifest.write_text(manifest.read_text().replace("path: in", f"path: {path / 'in'}"))
        self.configure(models="models")
        self.platform = share_platform(Platform(load_config(self.config), start=spark))
        self.instance = DagsterInstance.ephemeral()

    def configure(self, **config: Any) -> None:
        super().configure(store=str(self.path / "state"), **config)

    def deliver(self, delivery: int, *skus: str, price: str = "1.50") -> None:
        """One more file, landed in Bronze."""
        rows = [f"{delivery},{line},{sku},{price}" for line, sku in enumerate(skus, 1)]
        (self.path / "in" / f"{delivery}.csv").write_text("\n".join(["delivery,line,sku,price", *rows]) + "\n")
        manifest = find_manifest(self.platform.config, "drops")
        with IngestRun(StreamSubject(self.platform, "default", manifest, manifest.streams[0]), str(uuid4())) as run:
            with run.step("plan"):
                plan = run.plan(full=False)
            with run.step("land"):
                run.land(plan)
            run.publish()

    @property
    def definitions(self) -> Definitions:
        platform = PlatformResource(config_path=str(self.config))
        resources = {"connectors": ConnectorsResource(platform=platform), "models": ModelsResource(platform=platform)}
        config = load_config(self.config)
        own = Definitions(executor=in_process_executor, resources=resources)
        return Definitions.merge(own, ingest_definitions(config), model_definitions(config))

    def run(self, *names: str, full: bool = False) -> ExecuteInProcessResult:
        """Runs models; what went wrong is in the result."""
        chosen = names or tuple(self.load().models)
        return self.definitions.resolve_job_def("models").execute_in_process(
            instance=self.instance,
            asset_selection=[model_key(name) for name in chosen],
            run_config={"ops": {op_name(name): {"config": {"full": full}} for name in chosen}, **QUIET},
            raise_on_error=False,
        )

    def only_checks(self, name: str) -> ExecuteInProcessResult:
        """Runs the checks of a model and nothing else, as the web UI's button does."""
        alone = define_asset_job("alone", selection=AssetSelection.checks_for_assets(model_key(name)))
        job = Definitions.merge(self.definitions, Definitions(jobs=[alone])).resolve_job_def("alone")
        return job.execute_in_process(instance=self.instance, run_config=QUIET, raise_on_error=False)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found = self.platform.spark.table(f"lake.{name}").toArrow().to_pylist()
        return sorted(found, key=lambda row: [str(value) for value in row.values()])

    def materialization(self, name: str) -> AssetMaterialization:
        """What the newest materialisation of a model tells."""
        found = self.instance.get_latest_materialization_event(AssetKey(name.split(".")))
        assert found is not None
        assert found.asset_materialization is not None
        return found.asset_materialization
