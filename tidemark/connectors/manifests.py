"""All manifests that a configuration names."""

from collections.abc import Iterator
from pathlib import Path

from tidemark.config import Config
from tidemark.config.environment import BadReference, substituted
from tidemark.config.problems import did_you_mean
from tidemark.connectors.contract import Connector
from tidemark.connectors.manifest import Manifest, read_manifest
from tidemark.connectors.place import plain
from tidemark.connectors.registry import connector_for
from tidemark.errors import ConfigError, UsageError
from tidemark.parts import Claim, Parts, refuse_broken, without_shared_names

ASIDE = ", case and punctuation aside"


def load_manifests(config: Config) -> Parts[Manifest]:
    """Every connector by its id, in the order of the files' names. One that is wrong is among the `broken`."""
    claims: dict[Path, Claim[Manifest]] = {}
    missing: list[Claim[Manifest]] = []
    for position, pattern in enumerate(config.connectors):
        paths = _files(config.path.resolve().parent, pattern)
        claims |= {path: _with_credentials(config, read_manifest(path)) for path in paths if path not in claims}
        if not paths:
            finding = config.finding(("connectors", position), f"no file matches {pattern}.")
            name = None if "*" in pattern else Path(pattern).stem
            missing.append(Claim(finding.file, name, None, (finding,), guessed=True))
    return Parts([*without_shared_names([*claims.values()], plain, ASIDE), *missing])


def _files(folder: Path, pattern: str) -> list[Path]:
    root = Path(pattern).anchor
    return sorted(Path(root).glob(pattern.removeprefix(root)) if root else folder.glob(pattern))


def _with_credentials(config: Config, claim: Claim[Manifest]) -> Claim[Manifest]:
    """The claim; the name of credentials that do not exist is wrong too."""
    name = claim.part.credentials if claim.part else None
    if claim.part is None or not isinstance(name, str) or name in config.credentials:
        return claim
    return claim.found(claim.part.written.finding(("credentials",), no_credentials(config, name)))


def no_credentials(config: Config, name: str) -> str:
    known = ", ".join(config.credentials) or "none"
    return f"no credentials '{name}' in {config.path}.{did_you_mean(name, config.credentials)} Credentials: {known}."


def find_manifest(config: Config, connector: str) -> Manifest:
    known = load_manifests(config)
    if connector not in known:
        refuse_broken(known.broken, connector)
        listed = ", ".join(known) or "none; name their manifests under `connectors:`"
        raise UsageError(
            f"no connector '{connector}' in {config.path}.{did_you_mean(connector, known)} Connectors: {listed}."
        )
    return known[connector]


def opened_connector(config: Config, manifest: Manifest, tenant: str) -> Connector:
    """The connector of a manifest for a tenant, with its credentials and within its rate limit."""

    def named(name: str) -> dict[str, str]:
        if name not in config.credentials:
            raise manifest.written.refuse(("credentials",), no_credentials(config, name))
        return dict(resolved_fields(config, name))

    connector = connector_for(manifest.kind, manifest.resolved_settings(), manifest.resolved_credentials(named))
    connector.owner = f"{tenant}/{manifest.connector}"
    connector.limit(manifest.rate_limit)
    return connector


def resolved_fields(config: Config, name: str) -> Iterator[tuple[str, str]]:
    """Each field of credentials with the environment put in."""
    for field, value in config.credentials[name].items():
        try:
            yield field, substituted(value.get_secret_value())
        except BadReference as error:
            raise ConfigError.of([config.finding(("credentials", name, field), str(error))]) from None


def checked_tenant(config: Config, tenant: str) -> str:
    if tenant not in config.tenants:
        known = ", ".join(config.tenants)
        raise UsageError(f"no tenant '{tenant}' in {config.path}.{did_you_mean(tenant, config.tenants)} Tenants: {known}.")
    return tenant
