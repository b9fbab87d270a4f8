"""What is wrong with connections and connectors although they can be read: found when one is used, or here before."""

from collections.abc import Iterator, Mapping
from typing import Any

from tidemark.config import Config
from tidemark.config.environment import BadReference, substituted
from tidemark.config.problems import Place
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.manifests import resolved_fields
from tidemark.connectors.registry import connector_for
from tidemark.errors import ConfigError
from tidemark.findings import Finding


def connection_findings(config: Config, *, variables: bool) -> Iterator[Finding]:
    """URLs that no source can be at."""
    from tidemark.catalog.packs.base import pack_for

    for name, connection in config.connections.items():
        try:
            url = connection.resolved_url()
        except ConfigError as error:
            yield from error.findings if variables else ()
            continue
        try:
            pack_for(connection.app, url)
        except ConfigError as error:
            yield config.finding(("connections", name, "url"), str(error))


def connector_findings(config: Config, manifests: Mapping[str, Manifest], *, variables: bool) -> Iterator[Finding]:
    """Settings and credentials that the kind of a connector cannot use."""
    for manifest in manifests.values():
        unset = [*_unset(manifest, manifest.settings, ("settings",)), *_unset_credentials(config, manifest)]
        if unset:
            yield from unset if variables else ()
        else:
            yield from _refused(config, manifest)
    named = {manifest.credentials for manifest in manifests.values() if isinstance(manifest.credentials, str)}
    for name in config.credentials.keys() - named:
        unused = config.finding(("credentials", name), "no manifest names these credentials.")
        yield Finding(unused.file, unused.line, unused.message, unused.key, "warning")


def _unset(manifest: Manifest, value: Any, place: Place) -> Iterator[Finding]:
    """Every variable below a place that is not set."""
    if isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _unset(manifest, item, (*place, key))
    elif isinstance(value, str):
        try:
            substituted(value)
        except BadReference as error:
            yield manifest.written.finding(place, str(error))


def _unset_credentials(config: Config, manifest: Manifest) -> Iterator[Finding]:
    if not isinstance(manifest.credentials, str):
        yield from _unset(manifest, manifest.credentials or {}, ("credentials",))
    elif manifest.credentials in config.credentials:
        for field, value in config.credentials[manifest.credentials].items():
            try:
                substituted(value.get_secret_value())
            except BadReference as error:
                yield config.finding(("credentials", manifest.credentials, field), str(error))


def _refused(config: Config, manifest: Manifest) -> Iterator[Finding]:
    """What the kind says of its settings; to make a connector opens nothing."""
    settings = manifest.resolved_settings()
    try:
        credentials = manifest.resolved_credentials(lambda name: dict(resolved_fields(config, name)))
        connector_for(manifest.kind, settings, credentials)
    except ConfigError as error:
        yield manifest.written.finding(_meant(str(error), manifest), str(error))
    except ImportError as error:
        words = f"the kind '{manifest.kind}' cannot be loaded: {error.name or 'a package'} is not installed."
        yield manifest.written.finding(("kind",), words)


def _meant(message: str, manifest: Manifest) -> Place:
    """The setting that a kind complains about; it names it, or means all of them."""
    section = "credentials" if message.startswith("credentials") else "settings"
    written = manifest.settings if section == "settings" else ()
    words = message.replace("`", " ").replace(",", " ").replace(":", " ").replace(".", " ").split()
    unknown = [key for key in written if key in words]
    return (section, unknown[0]) if unknown else (section,)
