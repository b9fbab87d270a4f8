"""Streams as a system: the names that people give at a shell are TENANT/CONNECTOR/STREAM, or a part of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.errors import UsageError
from tidemark.runs.system import System
from tidemark.subjects import configured_streams

if TYPE_CHECKING:
    from spark_code.connectors.subject import StreamSubject
    from spark_code.platform import Platform
    from tidemark.config import Config


def parts_of(name: str, least: int, most: int) -> list[str]:
    parts = name.split("/")
    if not least <= len(parts) <= most or not all(parts):
        form = "/".join(("TENANT", "CONNECTOR", "STREAM")[:most])
        raise UsageError(f"'{name}' is not of the form {form}, with {least} to {most} parts.")
    return parts


def select(config: "Config", names: Sequence[str]) -> list[str]:
    """The addresses of streams, and of all streams of connectors."""
    from tidemark.address import Address
    from tidemark.connectors.manifests import checked_tenant, find_manifest

    found = []
    for name in names:
        tenant, connector, *rest = parts_of(name, 2, 3)
        manifest = find_manifest(config, connector)
        streams = [manifest.stream(rest[0])] if rest else list(manifest.streams)
        checked_tenant(config, tenant)
        found += [str(Address.stream(tenant, connector, stream.id)) for stream in streams]
    return found


def open_stream(platform: "Platform", name: str) -> "StreamSubject":
    tenant, connector, stream = parts_of(name, 3, 3)
    from tidemark.connectors.manifests import checked_tenant, find_manifest

    manifest = find_manifest(platform.config, connector)
    described = manifest.stream(stream)
    checked_tenant(platform.config, tenant)
    from spark_code.connectors.subject import StreamSubject

    return StreamSubject(platform, tenant, manifest, described)


STREAM = System(
    noun="stream",
    summary="Streams of connectors: records landed in Bronze, and how far they were read.",
    form="TENANT/CONNECTOR/STREAM",
    configured=configured_streams,
    place=2,
    open=open_stream,
    select=select,
)
