"""All manifests that a configuration names."""

from tidemark.config import Config
from tidemark.config.problems import did_you_mean
from tidemark.connectors.contract import Connector
from tidemark.connectors.manifest import Manifest, load_manifest
from tidemark.connectors.place import plain
from tidemark.connectors.registry import connector_for
from tidemark.errors import ConfigError, UsageError


def load_manifests(config: Config) -> dict[str, Manifest]:
    """Every connector by its id, in the order of the files' names."""
    tables = {plain(tenant) for tenant in config.tenants}
    if len(tables) < len(config.tenants):
        raise ConfigError(f"{config.path}: tenants: two are the same, case and punctuation aside, as their tables would be.")
    folder = config.path.resolve().parent
    found: dict[str, Manifest] = {}
    for pattern in config.connectors:
        paths = sorted(folder.glob(pattern)) if not pattern.startswith("/") else [folder / pattern]
        if not paths:
            raise ConfigError(f"{config.path}: connectors: there is no file {pattern} in {folder}.")
        for path in paths:
            manifest = load_manifest(path)
            same = [known for known in found if plain(known) == plain(manifest.connector)]
            if same:
                raise ConfigError(f"{path}: there is a connector '{same[0]}' already (case and punctuation aside).")
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


def opened_connector(config: Config, manifest: Manifest, tenant: str) -> Connector:
    """The connector of a manifest for a tenant, with its credentials and within its rate limit."""

    def named(name: str) -> dict[str, str]:
        if name not in config.credentials:
            known = ", ".join(config.credentials) or "none"
            raise ConfigError(
                f"{manifest.connector}: no credentials '{name}' in {config.path}.{did_you_mean(name, config.credentials)} "
                f"Credentials: {known}."
            )
        return {field: value.get_secret_value() for field, value in config.credentials[name].items()}

    connector = connector_for(manifest.kind, manifest.resolved_settings(), manifest.resolved_credentials(named))
    connector.owner = f"{tenant}/{manifest.connector}"
    connector.limit(manifest.rate_limit)
    return connector


def checked_tenant(config: Config, tenant: str) -> str:
    if tenant not in config.tenants:
        known = ", ".join(config.tenants)
        raise UsageError(f"no tenant '{tenant}' in {config.path}.{did_you_mean(tenant, config.tenants)} Tenants: {known}.")
    return tenant
