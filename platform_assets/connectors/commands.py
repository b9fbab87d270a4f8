"""`tidemark ingest` and `tidemark stream`: connectors at a shell."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_assets.connectors import trying
from tidemark.cli.app import AsJson, ConfigFile
from tidemark.cli.output import console, messages, print_facts, print_json, print_table
from tidemark.cli.running import one_by_one
from tidemark.config import load_config
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.control import RunRecord, StateRegistry

Name = Annotated[str, typer.Argument(metavar="TENANT/CONNECTOR/STREAM", help="A stream of a tenant.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it stays in the history of the stream.")]


def register(app: typer.Typer) -> None:
    app.command()(ingest)
    stream = typer.Typer(help="The state of a stream: how far it has been read.", no_args_is_help=True)
    for name, command in (
        ("list", stream_list), ("show", stream_show), ("history", stream_history), ("rewind", stream_rewind),
        ("reset", stream_reset), ("late", stream_late),
    ):  # fmt: skip
        stream.command(name)(command)
    app.add_typer(stream, name="stream")
    trying.register(app)


# --- running ---------------------------------------------------------------------------------------------------------


def ingest(
    name: Annotated[str, typer.Argument(metavar="TENANT/CONNECTOR[/STREAM]", help="A connector, or one of its streams.")],
    full: Annotated[bool, typer.Option("--full", help="Read everything, whatever the state says.")] = False,
    allow_deletions: Annotated[
        bool, typer.Option("--allow-deletions", help="Delete even if more records went than the guard allows.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Bring streams up to date: read what is new, land it in Bronze, check, publish, move the state."""
    loaded = load_config(config)
    from tidemark.connectors.manifests import checked_tenant, find_manifest

    tenant, connector, *rest = parts_of(name, 2, 3)
    manifest = find_manifest(loaded, connector)
    streams = [manifest.stream(rest[0])] if rest else list(manifest.streams)
    checked_tenant(loaded, tenant)
    from platform_assets.connectors.launch import launch
    from platform_assets.instance import open_instance

    with open_instance(loaded) as instance:
        done = one_by_one(
            [stream.id for stream in streams],
            lambda stream: shown(
                stream, launch(instance, tenant, connector, stream, full=full, allow_deletions=allow_deletions)
            ),
        )
    if as_json:
        print_json(done.results[0] if rest else done.results)
    elif done.results:
        for result in done.results:
            console.print(line_of(result), highlight=False)
    done.end()


def shown(stream: str, record: "RunRecord") -> dict[str, Any]:
    numbers = {key: record.detail.get(key, 0) for key in ("slices", "read", "landed", "duplicates", "quarantined")}
    seconds = round(sum(record.detail.get("seconds", {}).values()), 2)
    return {
        "stream": stream,
        "status": record.status,
        "mode": record.mode,
        "reason": record.reason,
        **numbers,
        "seconds": seconds,
    }


def line_of(run: dict[str, Any]) -> str:
    """A run in a line that people read."""
    return (
        f"{run['stream']}: {run['status']} ({run['mode']}, {run['reason']}): "
        f"{run['read']:,} read in {run['slices']} slices, "
        f"{run['landed']:,} landed, {run['duplicates']:,} known, {run['quarantined']:,} quarantined, {run['seconds']:.2f} s"
    )


# --- state -----------------------------------------------------------------------------------------------------------


def stream_list(
    name: Annotated[str, typer.Argument(metavar="TENANT[/CONNECTOR]", help="Whose streams.")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """The streams that have a state. Their values are not shown."""
    tenant, *connector = parts_of(name, 1, 2)
    rows = [
        {
            "connector": each.connector_id,
            "stream": each.stream_id,
            "version": each.version,
            "cursor field": each.cursor_field,
            "moved": each.updated_at,
            "run": each.run_id,
        }
        for each in registry_of(config, tenant).list(*connector)
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(tenant, list(rows[0]), [list(row.values()) for row in rows])
    else:
        messages.print(f"{name}: no stream has a state yet", highlight=False)


def stream_show(name: Name, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """The state of one stream with its value, for the eyes of whoever may read the keys."""
    tenant, connector, stream = parts_of(name, 3, 3)
    found = registry_of(config, tenant).get(connector, stream)
    if found is None:
        raise UsageError(f"{name} has no state: it was never read, or reset. The next run reads everything.")
    if as_json:
        print_json(asdict(found))
    else:
        print_facts(name, asdict(found))


def stream_history(name: Name, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Every move of the state: who, when, which run, from and to which version, and why."""
    tenant, connector, stream = parts_of(name, 3, 3)
    moves = [asdict(move) for move in registry_of(config, tenant).history(connector, stream)]
    if as_json:
        print_json(moves)
    elif moves:
        print_table(name, list(moves[0]), [list(move.values()) for move in moves])
    else:
        messages.print(f"{name} has no history", highlight=False)


def stream_rewind(
    name: Name,
    to: Annotated[str | None, typer.Option("--to", help="A value of the cursor.")] = None,
    version: Annotated[int | None, typer.Option("--version", help="A version of the stream's history.")] = None,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell how many records would be read again.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Move the state back, so that the next run reads on from there. Bronze takes nothing twice."""
    from tidemark.control import actor

    tenant, connector, stream = parts_of(name, 3, 3)
    if (to is None) == (version is None):
        raise UsageError(f"rewind {name} either --to a value of its cursor, or to a --version of its history.")
    registry = registry_of(config, tenant)
    value = registry.value_of(connector, stream, version or 0) if to is None else parsed(config, connector, stream, to)
    go_back(config, connector, stream, registry, value)
    if dry_run:
        told = {"stream": name, **read_from(config, tenant, connector, stream, value)}
    else:
        target = {"to_value": value} if version is None else {"to_version": version}
        moved = registry.rewind(connector, stream, **target, actor=actor(), reason=reason)
        told = {"stream": name, "version": moved.version, "reason": reason}
    print_json(told) if as_json else print_facts(name, told)


def stream_reset(name: Name, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Take the state away, so that the next run reads everything."""
    from tidemark.control import actor

    tenant, connector, stream = parts_of(name, 3, 3)
    version = registry_of(config, tenant).reset(connector, stream, actor=actor(), reason=reason)
    told = {"stream": name, "version": version, "reason": reason}
    print_json(told) if as_json else print_facts(name, told)


def stream_late(
    name: Name,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the histogram as a picture into this file.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """How late records became visible, over all runs, and the safety window that would have taken them in."""
    tenant, connector, stream = parts_of(name, 3, 3)
    loaded = load_config(config)
    from tidemark.connectors import lateness
    from tidemark.connectors.manifests import checked_tenant, find_manifest
    from tidemark.connectors.place import SYSTEM, StreamPlace
    from tidemark.control import ControlDatabase

    spec = find_manifest(loaded, connector).stream(stream)
    place = StreamPlace(checked_tenant(loaded, tenant), connector, spec.id)
    runs = ControlDatabase(loaded.control).runs.history(SYSTEM, place.subject, limit=None)
    histogram = lateness.added(run.detail["late"] for run in runs if run.detail.get("late"))
    window = lateness.suggested_window(histogram)
    told = {
        "stream": name,
        "runs": len(runs),
        "late records": sum(histogram),
        "safety_window now": str(spec.safety_window),
        "safety_window suggested": lateness.iso(window) if window else "none: no record was late",
    }
    if svg is not None:
        svg.write_text(lateness.plot(histogram, f"{name}: records by how late they were"), encoding="utf-8")
    if as_json:
        print_json({**told, "histogram": dict(zip(lateness.NAMES, histogram, strict=True))})
        return
    print_facts(name, told)
    most = max(*histogram, 1)
    bars = [[bucket, count, "█" * -(-count * 40 // most)] for bucket, count in zip(lateness.NAMES, histogram, strict=True)]
    print_table("late by up to", ["late by up to", "records", ""], bars)


def registry_of(config: ConfigFile, tenant: str) -> "StateRegistry":
    loaded = load_config(config)
    from tidemark.connectors.manifests import checked_tenant
    from tidemark.control import ControlDatabase

    return ControlDatabase(loaded.control).streams(checked_tenant(loaded, tenant))


def parsed(config: ConfigFile, connector: str, stream: str, value: str) -> str:
    """The value, if the stream's cursor can have it."""
    from tidemark.connectors.manifests import find_manifest

    spec = find_manifest(load_config(config), connector).stream(stream)
    if spec.cursor is None:
        raise UsageError(f"{stream} has no cursor of its own. Rewind it to a --version of its history.")
    return str(spec.parse_cursor(value))


def go_back(config: ConfigFile, connector: str, stream: str, registry: "StateRegistry", value: str) -> None:
    """A state ahead of what has landed would skip records."""
    from tidemark.connectors.manifests import find_manifest

    spec, state = find_manifest(load_config(config), connector).stream(stream), registry.get(connector, stream)
    if spec.cursor is not None and state is not None and spec.parse_cursor(value) > spec.parse_cursor(state.last_cursor):
        raise UsageError(f"{stream}: a state can only go back, or the records in between would never be read.")


def read_from(config: ConfigFile, tenant: str, connector: str, stream: str, value: str) -> dict[str, int | None]:
    """How much the next run would read from there, as the source tells it now."""
    from tidemark.connectors.contract import CheckpointConnector, fixed_window
    from tidemark.connectors.manifests import find_manifest, opened_connector

    loaded = load_config(config)
    manifest = find_manifest(loaded, connector)
    spec = manifest.stream(stream)
    with opened_connector(loaded, manifest, tenant) as source:
        if isinstance(source, CheckpointConnector):
            return {"slices that would be read": len(source.pending(spec, value, parallel=1))}
        window = fixed_window(spec, spec.parse_cursor(value), source.now(spec))
        return {"records that would be read": source.count(spec, window)}


def parts_of(name: str, least: int, most: int) -> list[str]:
    parts = name.split("/")
    if not least <= len(parts) <= most or not all(parts):
        form = "TENANT/CONNECTOR/STREAM"
        raise UsageError(f"'{name}' is not of the form {form}, with {least} to {most} parts.")
    return parts
