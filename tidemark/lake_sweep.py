"""Removes files of the lake that nothing refers to: what killed writers left. No Spark.

A catalogue knows only its own commits. If it is an older copy, or another one uses the same folder, files that it does not
know may be in use. So nothing young is removed, and nothing at all where the folder holds metadata that the catalogue should
know and does not.
"""

import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import orjson
from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from tidemark.lake import LakeReader, files_of
from tidemark.store import ObjectInfo, ObjectStore

# Longer than any run takes from its first file to its commit.
MINIMUM_AGE = timedelta(days=3)

_METADATA = re.compile(r"(?:^|/)metadata/(?:(\d+)-)?[^/]*\.metadata\.json(?:\.gz)?$")


@dataclass(frozen=True)
class Swept:
    """How many files were removed, how many wait for their age, and why nothing was removed, if so."""

    removed: int = 0
    kept_young: int = 0
    refused: str | None = None


@dataclass(frozen=True)
class StrayMetadata:
    """A metadata file that the catalogue's own does not mention."""

    path: str
    content: TableMetadata

    @property
    def log(self) -> set[str]:
        return {_plain(entry.metadata_file) for entry in self.content.metadata_log}


@dataclass(frozen=True)
class Found:
    """What a folder holds, and which of its files are in use."""

    listed: list[ObjectInfo]
    known: set[str]
    # Written to of late, by whom is not known: all of it waits.
    busy: bool = False


class _Refused(Exception):
    """Why nothing may be removed."""


def sweep(
    reader: LakeReader,
    store: ObjectStore,
    table: str,
    *,
    now: datetime,
    older_than: timedelta = MINIMUM_AGE,
    more: Iterable[str] = (),
) -> Swept:
    """Removes files below the table's folder that no snapshot refers to and that are older than the minimum age.

    `more` are tables that share files with this one, such as a shadow table: their folders are swept too, also when they
    are no longer in the catalogue, and what one of them refers to stays. A lake that is not below the store is left alone.
    """
    primary = reader.table(table)
    folder = _folder(primary, store) if primary else None
    if folder is None:
        return Swept()
    namespace = folder.rpartition("/")[0]
    try:
        found = [_look(reader, store, table, folder)]
        found += [_look(reader, store, name, f"{namespace}/{name.rpartition('.')[2]}", now - older_than) for name in more]
    except _Refused as refused:
        return Swept(refused=str(refused))
    known = set().union(*(each.known for each in found))
    strays = {
        info.key: info.modified <= now - older_than and not each.busy
        for each in found
        for info in each.listed
        if store.uri(without_checksum(info.key)) not in known
    }
    old = [key for key, may_go in strays.items() if may_go]
    store.delete(*old)
    return Swept(len(old), len(strays) - len(old))


def why_distrusted(reader: LakeReader, store: ObjectStore, table: str) -> str | None:
    """Why the catalogue's word about a table is not enough to remove anything of it: its folder holds metadata that the
    catalogue should know and does not. None if there is no reason, or if the lake is not below the store."""
    found = reader.table(table)
    folder = _folder(found, store) if found else None
    if found is None or folder is None:
        return None
    try:
        _used_by_others(table, found, store, list(store.list(f"{folder}/metadata/")))
    except _Refused as refused:
        return str(refused)
    return None


def _look(reader: LakeReader, store: ObjectStore, name: str, folder: str, quiet_since: datetime | None = None) -> Found:
    """First what is there, then what is known: a file that is committed in between is known."""
    table = reader.table(name)
    own = _folder(table, store) if table else folder
    listed = list(store.list(own)) if own else []
    if table is None:
        # Dropped, or a table of another catalogue that is at work on it.
        busy = quiet_since is None or any(_METADATA.search(info.key) and info.modified > quiet_since for info in listed)
        return Found(listed, set(), busy)
    known = {_plain(path) for path in reader.referenced(name)}
    if own:
        known |= _used_by_others(name, table, store, listed)
    return Found(listed, known)


def without_checksum(key: str) -> str:
    """The file that a local checksum file `.name.crc` belongs to; any other file is its own."""
    folder, _, name = key.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else key


def _folder(table: Table, store: ObjectStore) -> str | None:
    """The table's folder in the store; None if it lies elsewhere."""
    location = _plain(table.location()).rstrip("/")
    return location.removeprefix(f"{store.root}/") if location.startswith(f"{store.root}/") else None


def _plain(path: str) -> str:
    """One spelling of a place, whoever wrote it down."""
    return re.sub(r"^s3[an]:", "s3:", re.sub(r"^(file:)?/+", "/", path))


def _used_by_others(name: str, table: Table, store: ObjectStore, listed: list[ObjectInfo]) -> set[str]:
    """Files of commits that the catalogue does not know; _Refused if it cannot be trusted to know what is in use."""
    current, ours = _plain(table.metadata_location), table.metadata
    if not any(store.uri(info.key) == current for info in listed):
        raise _Refused(
            f"{name}: the catalogue's own metadata file {current} is not among the files of the table. Nothing was removed; "
            "check the spelling of the lake's address."
        )
    strays = _stray_metadata(table, store, listed)
    committed = {path for stray in strays for path in stray.log}
    for stray in sorted(strays, key=lambda each: each.content.last_updated_ms, reverse=True):
        same = stray.content.table_uuid == ours.table_uuid
        newer = stray.content.last_updated_ms > ours.last_updated_ms
        if newer or (same and (_version(stray.path) > _version(current) or stray.path in committed)):
            raise _Refused(
                f"{name}: the catalogue does not know {stray.path}. It may be an older copy, or another catalogue uses the "
                "same folder. Nothing was removed; restore the newest catalogue, or delete that file if none knows it."
            )
    # Of a single commit nobody knows whether its writer was killed before the catalogue took it, or whether it is the
    # last one of another catalogue. It stays until the log of ours has moved on.
    same_table = [stray for stray in strays if stray.content.table_uuid == ours.table_uuid]
    return {path for stray in same_table for path in _files_of(stray, table)}


def _files_of(stray: StrayMetadata, table: Table) -> set[str]:
    try:
        return {stray.path, *(_plain(path) for path in files_of(stray.content, stray.path, table.io))}
    except FileNotFoundError:
        return set()  # nobody can read it any more


def _stray_metadata(table: Table, store: ObjectStore, listed: list[ObjectInfo]) -> list[StrayMetadata]:
    """Those not mentioned since the catalogue's own log began: what is older may have dropped out of it."""
    log = table.metadata.metadata_log
    mentioned = {_plain(table.metadata_location), *(_plain(entry.metadata_file) for entry in log)}
    since = min([table.metadata.last_updated_ms, *(entry.timestamp_ms for entry in log)])
    begun = datetime.fromtimestamp(since / 1000, UTC).replace(microsecond=0)
    keys = [info.key for info in listed if _METADATA.search(info.key) and info.modified >= begun]
    read = [_read(store, key) for key in keys if store.uri(key) not in mentioned]
    return [stray for stray in read if stray is not None and stray.content.last_updated_ms >= since]


def _read(store: ObjectStore, key: str) -> StrayMetadata | None:
    """None for a file that is gone or not whole: no catalogue can have committed that."""
    found = store.find(key)
    body = bytes(found.body) if found else b""
    try:
        text = (gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body).decode()
        orjson.loads(text)
    except (ValueError, EOFError, OSError):
        return None
    try:
        return StrayMetadata(store.uri(key), TableMetadataUtil.parse_raw(text))
    except ValidationError as error:
        raise _Refused(
            f"{store.uri(key)}: metadata that the catalogue does not know, in a format that this version cannot read. "
            "Nothing was removed; delete that file if no catalogue knows it."
        ) from error


def _version(path: str) -> int:
    """The number in front of a metadata file's name; -1 if it has none."""
    named = _METADATA.search(path)
    return int(named[1]) if named and named[1] else -1
