"""The manifest of the JSON mirror `current-state/`, and how to check that the files are what it says."""

from dataclasses import dataclass
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

    def as_object(self) -> bytes:
        return (self.model_dump_json(indent=2) + "\n").encode()


@dataclass(frozen=True)
class FoundManifest:
    """The manifest and the etag it was read with. A damaged one has an etag and no content."""

    manifest: Manifest | None
    etag: str | None


def find_manifest(store: ObjectStore, layout: CatalogLayout) -> FoundManifest:
    found = store.find(layout.manifest)
    if found is None:
        return FoundManifest(None, None)
    try:
        return FoundManifest(Manifest.model_validate_json(bytes(found.body)), found.etag)
    except ValidationError:
        return FoundManifest(None, found.etag)


def read_manifest(store: ObjectStore, layout: CatalogLayout) -> Manifest | None:
    """The manifest, or None when the mirror is being written, was interrupted, or the manifest is damaged."""
    return find_manifest(store, layout).manifest


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
