"""All manifests that a configuration names."""

from tidemark.config import Config
from tidemark.config.problems import did_you_mean
from tidemark.connectors.manifest import Manifest, load_manifest
from tidemark.errors import ConfigError, UsageError


def load_manifests(config: Config) -> dict[str, Manifest]:
    """Every connector by its id, in the order of the files' names."""
    folder = config.path.resolve().parent
    found: dict[str, Manifest] = {}
    for pattern in config.connectors:
        paths = sorted(folder.glob(pattern)) if not pattern.startswith("/") else [folder / pattern]
        if not paths:
            raise ConfigError(f"{config.path}: connectors: there is no file {pattern} in {folder}.")
        for path in paths:
            manifest = load_manifest(path)
            if manifest.connector in found:
                raise ConfigError(f"{path}: there is a connector '{manifest.connector}' already. Give it an id of its own.")
            found[manifest.connector] = manifest
    return found


def find_manifest(config: Config, connector: str) -> Manifest:
    known = load_manifests(config)
    if connector not in known:
        listed = ", ".join(known) or "none; name their manifests under `connectors:`"
        raise UsageError(
            f"no connector '{connector}' in {config.path}.{did_you_mean(connector, known)} Connectors: {listed}."
        )
    return known[connector]


def checked_tenant(config: Config, tenant: str) -> str:
    if tenant not in config.tenants:
        known = ", ".join(config.tenants)
        raise UsageError(f"no tenant '{tenant}' in {config.path}.{did_you_mean(tenant, config.tenants)} Tenants: {known}.")
    return tenant
