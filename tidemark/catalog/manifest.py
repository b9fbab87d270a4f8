"""The manifest of the JSON mirror `current-state/`, and how to tell whether the files are what it says."""

import hashlib
from datetime import datetime

from pydantic import BaseModel, ConfigDict, ValidationError

from tidemark.catalog.chunks import ChunkFile
from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.rows import FRESH, Label
from tidemark.store import ObjectStore


class Manifest(BaseModel):
    """`_manifest.json`: there only while every file it lists is complete."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    snapshot_id: int
    written_at: datetime
    chunk_size: int
    counts: dict[str, int]
    files: list[ChunkFile]

    @property
    def paths(self) -> set[str]:
        return {file.path for file in self.files}


def read_manifest(store: ObjectStore, layout: CatalogLayout) -> Manifest | None:
    """The manifest, or None when the mirror is being written, was interrupted, or the manifest is damaged."""
    found = store.find(layout.manifest)
    if found is None:
        return None
    try:
        return Manifest.model_validate_json(bytes(found.body))
    except ValidationError:
        return None


def damaged_files(store: ObjectStore, layout: CatalogLayout, manifest: Manifest) -> list[ChunkFile]:
    """Files that are gone or do not have the size the manifest states. One listing, no content."""
    prefix = layout.current_state + "/"
    sizes = {info.key.removeprefix(prefix): info.size for info in store.list(prefix)}
    return [file for file in manifest.files if sizes.get(file.path) != file.bytes]


def stale_keys(store: ObjectStore, layout: CatalogLayout, files: list[ChunkFile]) -> list[str]:
    """Objects below `current-state/` that no file of the manifest accounts for."""
    prefix = layout.current_state + "/"
    wanted = {prefix + file.path for file in files} | {layout.manifest}
    return [info.key for info in store.list(prefix) if info.key not in wanted]


def settled(body: bytes) -> bytes:
    """The same entities, all NO CHANGE: what a file becomes when nothing in it changed in this run.

    A label stands right before the end of a line, and no JSON text holds a raw line break, so this cannot hit a value.
    """
    for label in FRESH:
        body = body.replace(_tail(label), _tail(Label.NO_CHANGE))
    return body


def _tail(label: Label) -> bytes:
    return f',"incremental_state":"{label}"}}}}\n'.encode()


def settle_file(store: ObjectStore, layout: CatalogLayout, file: ChunkFile) -> ChunkFile | None:
    """Rewrites one file with its labels settled; None if what is there is not what the manifest says."""
    key = f"{layout.current_state}/{file.path}"
    found = store.find(key)
    if found is None or hashlib.sha256(found.body).hexdigest() != file.sha256:
        return None
    body = settled(bytes(found.body))
    store.put(key, body)
    return file.model_copy(update={"changed": 0, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()})
