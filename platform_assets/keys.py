"""The keys of assets that systems refer to across: models read streams."""

from dagster import AssetKey

from tidemark.connectors.place import plain


def landed_key(connector: str, stream: str) -> AssetKey:
    return AssetKey([plain(connector), plain(stream), "landed"])


def bronze_key(connector: str, stream: str) -> AssetKey:
    return AssetKey([plain(connector), plain(stream), "bronze"])


def model_key(name: str) -> AssetKey:
    return AssetKey(name.split("."))
