"""The configuration `tidemark.yaml`: what it may say, and how it is read."""

from tidemark.config.connection import Connection
from tidemark.config.loading import config_path, load_config
from tidemark.config.model import Config, EmailSettings, SparkSettings, StoreSettings
from tidemark.config.models import ModelsSettings
from tidemark.config.openlineage import OpenLineageSettings
from tidemark.config.schema import config_schema

__all__ = [
    "Config",
    "Connection",
    "EmailSettings",
    "ModelsSettings",
    "OpenLineageSettings",
    "SparkSettings",
    "StoreSettings",
    "config_path",
    "config_schema",
    "load_config",
]
