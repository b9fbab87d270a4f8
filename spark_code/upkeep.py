"""Upkeep of everything that the configuration names: the tables of its connections, its streams and its models."""

from collections.abc import Callable, Sequence
from typing import Any

from spark_code.catalog import maintenance as of_catalog
from spark_code.catalog.subject import CatalogSubject
from spark_code.connectors import maintenance as of_connectors
from spark_code.connectors.subject import StreamSubject
from spark_code.models import maintenance as of_models
from spark_code.platform import Platform
from tidemark.config.problems import did_you_mean
from tidemark.connectors.manifests import checked_tenant, find_manifest, load_manifests
from tidemark.errors import UnknownModel
from tidemark.models.graph import load_project
from tidemark.models.project import Model

MODELS = "models"
Keep = Callable[[int], dict[str, Any]]


def keepers(platform: Platform, names: Sequence[str] | None) -> dict[str, Keep]:
    """What brings each of the names in order; without names, everything. An unknown name is told before anything is done."""
    return {name: keeper(platform, name) for name in names or everything(platform)}


def everything(platform: Platform) -> list[str]:
    config = platform.config
    streams = [
        f"{tenant}/{manifest.connector}/{stream.id}"
        for manifest in load_manifests(config).values()
        for tenant in config.tenants
        for stream in manifest.streams
    ]
    models = [f"{MODELS}/{name}" for name, model in load_project(config).models.items() if is_table(model)]
    return [*config.connections, *streams, *models]


def keeper(platform: Platform, name: str) -> Keep:
    tenant, *rest = name.split("/")
    if tenant == MODELS and len(rest) == 1:
        return model_keeper(platform, rest[0])
    if len(rest) != 2:
        connection = CatalogSubject(platform, platform.config.connection(name))
        return lambda keep_runs: of_catalog.maintain(connection, keep_runs=keep_runs)
    manifest = find_manifest(platform.config, rest[0])
    stream = StreamSubject(platform, checked_tenant(platform.config, tenant), manifest, manifest.stream(rest[1]))
    return lambda keep_runs: of_connectors.maintain(stream, keep_runs=keep_runs)


def model_keeper(platform: Platform, name: str) -> Keep:
    models = load_project(platform.config).models
    if name not in models:
        raise UnknownModel(f"no model '{name}'.{did_you_mean(name, models)} Models: {', '.join(models) or 'none'}.")
    metadata = models[name].metadata
    return lambda keep_runs: of_models.maintain(platform, name, metadata, keep_runs=keep_runs)


def is_table(model: Model) -> bool:
    return model.metadata.materialization != "view"
