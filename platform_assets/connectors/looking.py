"""`tidemark stream list|show|late`: how far streams were read, without Spark."""

from pathlib import Path
from typing import Annotated

import typer

from platform_assets.connectors.naming import StreamName, address_of, marks_to_look_at
from spark_code.connectors.system import parts_of
from tidemark.cli.options import AsJson, ConfigFile
from tidemark.cli.output import print_json, say
from tidemark.cli.tables import print_facts, print_table, short
from tidemark.errors import UsageError


def list_streams(
    name: Annotated[str, typer.Argument(metavar="TENANT[/CONNECTOR]", help="Whose streams.")],
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """The streams that have a state. Their values are not shown."""
    from tidemark.config import load_config

    tenant, *connector = parts_of(name, 1, 2)
    rows = [
        {
            "subject": each.subject,
            "version": each.version,
            "cursor_field": each.field,
            "moved_at": each.moved_at,
            "run_id": each.run_id,
        }
        for each in marks_to_look_at(load_config(config), tenant).list("/".join(["stream", tenant, *connector]))
    ]
    if as_json:
        print_json(rows)
    elif rows:
        ids = [str(row["run_id"]) for row in rows if row["run_id"]]
        shown = [{**row, "run_id": short(str(row["run_id"]), ids) if row["run_id"] else None} for row in rows]
        print_table("", ["stream", "version", "cursor field", "moved at", "run"], [list(row.values()) for row in shown])
    else:
        say(f"{name}: no stream has a state yet")


def show_state(name: StreamName, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """The state of one stream with its value, for the eyes of whoever may read the keys."""
    from tidemark.config import load_config

    tenant, connector, stream = parts_of(name, 3, 3)
    found = marks_to_look_at(load_config(config), tenant).get(address_of(name))
    if found is None:
        raise UsageError(f"{name} has no state: it was never read, or reset. The next run reads everything.")
    facts = {
        "subject": found.subject,
        "tenant_id": tenant,
        "connector_id": connector,
        "stream_id": stream,
        "last_cursor": found.value,
        "cursor_field": found.field,
        "version": found.version,
        "updated_at": found.moved_at,
        "run_id": found.run_id,
    }
    print_json(facts) if as_json else print_facts(name, facts)


def late(
    name: StreamName,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the histogram as a picture into this file.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """How late records became visible, over all runs, and the safety window that would have taken them in."""
    from tidemark.config import load_config

    tenant, connector, stream = parts_of(name, 3, 3)
    loaded = load_config(config)
    from tidemark.connectors import lateness
    from tidemark.connectors.manifests import checked_tenant, find_manifest
    from tidemark.control import ControlDatabase

    spec = find_manifest(loaded, connector).stream(stream)
    checked_tenant(loaded, tenant)
    runs = ControlDatabase(loaded.control).runs.history(address_of(name), limit=None)
    histogram = lateness.added(run.detail["late"] for run in runs if run.detail.get("late"))
    window = lateness.suggested_window(histogram)
    facts = {
        "subject": address_of(name),
        "runs": len(runs),
        "late records": sum(histogram),
        "safety_window now": str(spec.safety_window),
        "safety_window suggested": lateness.iso(window) if window else "none: no record was late",
    }
    if svg is not None:
        svg.write_text(lateness.plot(histogram, f"{name}: records by how late they were"), encoding="utf-8")
    if as_json:
        print_json({**facts, "histogram": dict(zip(lateness.NAMES, histogram, strict=True))})
        return
    print_facts(name, facts)
    most = max(*histogram, 1)
    bars = [[bucket, count, "█" * -(-count * 40 // most)] for bucket, count in zip(lateness.NAMES, histogram, strict=True)]
    print_table("late by up to", ["late by up to", "records", ""], bars)
