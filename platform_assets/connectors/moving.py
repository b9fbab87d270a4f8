"""Moving the state of a stream back by hand: never forward, and counted first if asked."""

from typing import TYPE_CHECKING, Any

from platform_assets.connectors.naming import address_of, marks_of
from spark_code.connectors.system import parts_of
from tidemark.cli.options import ConfigFile
from tidemark.config import load_config
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.config import Config
    from tidemark.connectors.stream import StreamSpec
    from tidemark.control import Mark, Marks


def rewound(
    config: ConfigFile, name: str, to: str | None, version: int | None, reason: str, *, dry_run: bool
) -> dict[str, Any]:
    """Moves the state to a value or to a version; with `dry_run` says how much the next run would read then."""
    from tidemark.connectors.manifests import find_manifest
    from tidemark.control import ControlDatabase
    from tidemark.runs.by_hand import Target, rewind

    loaded = load_config(config)
    tenant, connector, stream = parts_of(name, 3, 3)
    spec, marks, address = find_manifest(loaded, connector).stream(stream), marks_of(loaded, tenant), address_of(name)

    def target(state: "Mark") -> Target:
        refuse_forward(spec, state, marks, to, version)
        return {"to_version": version} if version is not None else {"to_value": parsed(spec, to or "")}

    if dry_run:
        if state := marks.get(address):
            refuse_forward(spec, state, marks, to, version)
        value = marks.value_of(address, version) if version is not None else parsed(spec, to or "")
        return {"subject": address, **read_from(loaded, tenant, connector, spec, value)}
    moved = rewind(ControlDatabase(loaded.control), marks, address, reason, target)
    return {"subject": address, "version": moved.version, "reason": reason}


def refuse_forward(spec: "StreamSpec", state: "Mark", marks: "Marks", to: str | None, version: int | None) -> None:
    """A cursor is compared. What a connector keeps itself is behind if the state came from there."""
    from tidemark.runs.by_hand import versions_behind

    if spec.cursor is None:
        behind = version is None or version in versions_behind(marks.audit(state.subject))
    else:
        value = marks.value_of(state.subject, version) if version is not None else parsed(spec, to or "")
        behind = spec.parse_cursor(value) <= spec.parse_cursor(state.value)
    if not behind:
        raise UsageError(f"{state.subject}: a state can only go back, or the records in between would never be read.")


def taken_away(config: ConfigFile, name: str, reason: str) -> dict[str, Any]:
    """Takes the state away: the next run reads everything."""
    from tidemark.control import ControlDatabase
    from tidemark.runs.by_hand import reset

    loaded, address = load_config(config), address_of(name)
    version = reset(ControlDatabase(loaded.control), marks_of(loaded, parts_of(name, 3, 3)[0]), address, reason)
    return {"subject": address, "version": version, "reason": reason}


def parsed(spec: "StreamSpec", value: str) -> str:
    """The value, if the stream's cursor can have it."""
    if spec.cursor is None:
        raise UsageError(f"{spec.id} has no cursor of its own. Rewind it to a --version of its history.")
    return str(spec.parse_cursor(value))


def read_from(config: "Config", tenant: str, connector: str, spec: "StreamSpec", value: str) -> dict[str, int | None]:
    """How much the next run would read from there, as the source says now."""
    from tidemark.connectors.contract import CheckpointConnector, fixed_window
    from tidemark.connectors.manifests import find_manifest, opened_connector

    with opened_connector(config, find_manifest(config, connector), tenant) as source:
        if isinstance(source, CheckpointConnector):
            return {"slices that would be read": len(source.pending(spec, value, parallel=1))}
        window = fixed_window(spec, spec.parse_cursor(value), source.now(spec))
        return {"records that would be read": source.count(spec, window)}
