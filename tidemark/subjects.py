"""What the configuration asks to be kept up to date, system by system: addresses, and when runs and upkeep are due.

What reads manifests and queries is imported where it is needed: most commands need none of it.
"""

from typing import TYPE_CHECKING

from tidemark.runs.system import Configured

if TYPE_CHECKING:
    from tidemark.config import Config


def configured_connections(config: "Config") -> list[Configured]:
    file = str(config.path)
    usable = [Configured(each.address, each.schedule, each.upkeep, file) for each in config.connections.values()]
    return [*usable, *(Configured.unusable(f"catalog/{each.name}", each) for each in config.broken)]


def configured_streams(config: "Config") -> list[Configured]:
    from tidemark.address import Address
    from tidemark.connectors.manifests import load_manifests

    manifests = load_manifests(config)
    usable = [
        Configured(
            str(Address.stream(tenant, manifest.connector, stream.id)),
            manifest.schedule,
            manifest.upkeep,
            manifest.origin.file if manifest.origin else None,
        )
        for manifest in manifests.values()
        for tenant in config.tenants
        for stream in manifest.streams
    ]
    # Which streams a broken connector has is not known: its address is that of all of them.
    named = [
        Configured.unusable(f"stream/{tenant}/{each.name}", each)
        for each in manifests.broken
        for tenant in config.tenants
        if each.name
    ]
    return [*usable, *named, *(Configured.unusable("stream", each) for each in manifests.broken if not each.name)]


def configured_models(config: "Config") -> list[Configured]:
    """Views have no rows of their own, and nothing of them is due."""
    if config.models is None:
        return []
    from tidemark.address import Address
    from tidemark.models.graph import load_project

    project = load_project(config)
    usable = [
        Configured(str(Address.model(name)), model.metadata.schedule, model.metadata.upkeep, str(model.path))
        for name, model in project.models.items()
        if model.metadata.materialization != "view"
    ]
    broken = [Configured.unusable(f"model/{each.name}" if each.name else "model", each) for each in project.broken]
    return [*usable, *broken]


def views(config: "Config") -> list[str]:
    """They need no upkeep, but have runs."""
    if config.models is None:
        return []
    from tidemark.address import Address
    from tidemark.models.graph import load_project

    models = load_project(config).models.items()
    return [str(Address.model(name)) for name, model in models if model.metadata.materialization == "view"]
