"""Upkeep of a model's table: compact, forget, clean. Never what a stopped rebuild, or a dropped column, still needs."""

from typing import Any
from uuid import uuid4

from spark_code.models.adapter import ModelAdapter
from spark_code.models.run import ModelRun
from spark_code.platform import Platform
from tidemark.lake import RUN_ID
from tidemark.models.place import SYSTEM, quoted
from tidemark.models.spec import ModelMetadata
from tidemark.models.state import ModelState


def maintain(platform: Platform, name: str, metadata: ModelMetadata, *, keep_runs: int = 50) -> dict[str, Any]:
    """Under the model's lease, so that no run stages meanwhile. Returns what was done, in numbers."""
    adapter, run_id = ModelAdapter(platform), f"maintain-{uuid4()}"
    run = ModelRun(adapter, name, run_id)
    table = run.place.table
    with platform.control.leases.hold(run.place.lease, run_id) as lease:
        run.recover()
        if adapter.reader.table(run.place.beside) is not None:
            return {"left alone, a stopped rebuild waits": True}
        published = adapter.reader.published(table)
        if published is None:
            return {"nothing published": True}
        state, keys = run.states.get(name), metadata.incremental.options.key_columns if metadata.incremental else ()
        done: dict[str, Any] = {}
        if state and state.dropped and not keys:
            # Without a key, a dropped column can be restored from the files that have its values, and from those only.
            done["files left as they are, for dropped columns"] = True
        else:
            summary = published.summary.additional_properties if published.summary else {}
            ours = {RUN_ID: summary[RUN_ID]} if RUN_ID in summary else {}
            done |= platform.lake.compact(table, order_of(adapter, name, keys, metadata), ours)
        lease.confirm()
        done |= platform.lake.forget(table, kept_snapshots(run, state, keep_runs))
        done["unreferenced files removed"] = run.sweep()
        return done


def order_of(adapter: ModelAdapter, name: str, keys: tuple[str, ...], metadata: ModelMetadata) -> str:
    """Rows by key, as merges look for them; otherwise by the filter column, or by the first there is."""
    chosen = metadata.incremental.options.filter_column if metadata.incremental else None
    columns = adapter.existing(name).schema().fields
    wanted = [each.lower() for each in (keys or ((chosen,) if chosen else ()))] or [columns[0].name.lower()]
    return ", ".join(quoted(each.name) for each in columns if each.name.lower() in wanted)


def kept_snapshots(run: ModelRun, state: ModelState | None, keep_runs: int) -> set[int]:
    """Snapshots that the last runs left behind, those that dropped columns are restored from, and what is published."""
    reader, table = run.adapter.reader, run.place.table
    history = run.adapter.platform.control.runs.history(SYSTEM, run.place.subject)
    left = [each.snapshot for each in history if each.snapshot is not None]
    published = reader.published(table)
    dropped = {each.snapshot for each in state.dropped} if state else set()
    current = {published.snapshot_id} if published else set()
    return set(dict.fromkeys(left[:keep_runs])) | set(reader.branches(table).values()) | dropped | current
