"""The one way to the lake's readers: what a run staged, a new schema and the record of the run become visible in one commit.

Iceberg keeps one schema a table, not one a branch, and Spark changes it in a commit of its own. Written here by hand, a
commit may hold all of it: whatever takes something away from readers happens in the moment that gives them the new rows.

The commit is conditional on what the run started from and on the run's own branch. Recovery drops the branch of a dead run:
a process that was stopped for an hour and wakes up right before its commit changes nothing.
"""

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, TypeVar

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from tidemark.errors import LostRace
from tidemark.faults import fault_point
from tidemark.lake import MAIN, RUN_ID, LakeReader, branch_of, plain_path
from tidemark.lake_names import SHADOW, SHADOWS, shadow_name
from tidemark.runs.subject import Visible

log = logging.getLogger(__name__)
T = TypeVar("T")

# The property that says which run published what readers see. It changes in the commit that publishes.
PUBLISHED = "tidemark.published"
# Its field that names what was published: whether that is still so, the table itself shows.
SNAPSHOT, SEQUENCE = "snapshot", "sequence"
# The snapshots that a shadow table had from the beginning: their files are the table's.
COPIED = "tidemark.copied-snapshots"
_KEPT_FOR_EVER: dict[str, Any] = {"max_ref_age_ms": None, "max_snapshot_age_ms": None, "min_snapshots_to_keep": None}
# Numbers of a summary that describe a whole snapshot, whichever table it is in.
TOTALS = "total-"


@dataclass(frozen=True)
class Contents:
    """The files of a snapshot that is to be published: its manifests, and what its summary says of them."""

    manifests: Sequence[ManifestFile]
    totals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Publication:
    """What is to change. `base` is what must still be published for any of it to happen."""

    run_id: str
    base: int | None
    # A snapshot that is in the table already, contents for one that is made, or neither: then rows stay as they are.
    contents: Snapshot | Contents | None
    schema: Schema | None = None
    # What the next run must know of this one if this one dies right after the commit.
    record: Mapping[str, Any] = field(default_factory=dict)
    # More for the summary of a snapshot that is made.
    summary: Mapping[str, str] = field(default_factory=dict)
    branch: str | None = None


def visible(reader: LakeReader, name: str) -> Visible | None:
    """What readers of a table see, and the run that published it."""
    table = reader.table(name)
    if table is None:
        return None
    head = table.current_snapshot()
    record = json.loads(table.properties.get(PUBLISHED, "{}"))
    if not record or taken_back(table, record.pop(SNAPSHOT, None), record.pop(SEQUENCE, None)):
        # Published before this record was kept, or rolled back by somebody's SQL since: the snapshot itself names its run.
        return Visible(summary_of(head).get(RUN_ID), head.snapshot_id) if head else None
    return Visible(record.pop("run_id"), head.snapshot_id if head else None, record)


def publish_branch(
    table: Table,
    run_id: str,
    base: int | None,
    *,
    schema: Schema | None = None,
    summary: Mapping[str, str] | None = None,
    **more: Any,
) -> int | None:
    """Publishes what a run put onto its branch, several commits as one snapshot: nobody is to read a run half-way.

    A snapshot whose own summary lacks something, as Spark's procedures leave it, is made again with it: no file is copied.
    """
    branch = branch_of(run_id)
    staged = staged_snapshots(table, branch, base)
    if not staged:
        raise _branch_gone(table, run_id)
    said, wanted = summary_of(staged[0]), {RUN_ID: run_id, **(summary or {})}
    as_it_is = len(staged) == 1 and schema is None and wanted.items() <= said.items()
    contents = staged[0] if as_it_is else contents_of(table, staged[0])
    return publish(table, Publication(run_id, base, contents, schema, branch=branch, summary=wanted, **more))


def _branch_gone(table: Table, run_id: str) -> LostRace:
    return LostRace(f"{'.'.join(table.name())}: the branch of run {run_id} is gone; another run took over. Run again.")


def claim(table: Table, run_id: str) -> str | None:
    """A branch of the run at what is published, for a publication that stages elsewhere: recovery drops it, and the commit
    requires it. None where nothing is published yet: the commit requires that this is still so."""
    base = table.current_snapshot()
    if base is None:
        return None
    branch = branch_of(run_id)
    if branch not in table.refs():
        fault_point("lake.before_claim")
        _commit(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), [_ref_at(branch, base.snapshot_id)])
        fault_point("lake.after_claim")
    return branch


def drop_dangling_deletes(table: Table, run_id: str) -> bool:
    """Puts a snapshot onto the run's branch without the deletes that apply to no data file. Returns whether there were any.

    Compaction applies deletes and leaves their files in the table. Iceberg's own removal commits to what readers see.
    """
    branch = branch_of(run_id)
    head = table.snapshot_by_name(branch)
    if head is None:
        raise _branch_gone(table, run_id)
    listed = head.manifests(table.io)
    data = [each for each in listed if each.content is ManifestContent.DATA]
    deletes = [each for each in listed if each.content is ManifestContent.DELETES]
    if not deletes:
        return False
    needed = {file.file_path for task in table.scan(snapshot_id=head.snapshot_id).plan_files() for file in task.delete_files}
    kept, files, places = [], 0, 0
    for manifest in deletes:
        entries = [each.data_file for each in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]
        if any(each.file_path in needed for each in entries):
            kept.append(manifest)
            files, places = files + len(entries), places + sum(each.record_count for each in entries)
    if len(kept) == len(deletes):
        return False
    totals = {"total-delete-files": str(files), "total-position-deletes": str(places)}
    contents = replace(contents_of(table, head), manifests=[*data, *kept])
    contents = replace(contents, totals={**contents.totals, **totals})
    made = _snapshot(table, Publication(run_id, head.snapshot_id, contents), contents, table.metadata.current_schema_id)
    fault_point("lake.before_drop_deletes")
    _commit(table, _unmoved(table, branch), [AddSnapshotUpdate(snapshot=made), _ref_at(branch, made.snapshot_id)])
    fault_point("lake.after_drop_deletes")
    return True


def discard_left(reader: LakeReader, name: str, running: Callable[[], Iterable[str]], *, keep_files: bool = False) -> None:
    """Drops the branches that nobody works on: those of runs that have ended.

    `running` names the runs that are under way, and is asked after the branches were listed: a run is in the ledger before
    it stages anything, so whoever was stopped in here and woken finds a later run's branch either not listed or named.
    """
    left = reader.branches(name)
    fault_point("lake.before_discards")
    kept = {branch_of(run_id) for run_id in running()} if left else set()
    for branch in left:
        if branch not in kept:
            discard(reader.existing(name), branch, keep_files=keep_files)


def discard(table: Table, branch: str, *, keep_files: bool = False) -> None:
    """Drops a branch with the snapshots that only it has, and the files that only these refer to.

    `keep_files` is for files that a later run takes over. A branch that is gone already is no error.
    """
    if branch not in table.refs():
        return
    others = [table.snapshot_by_id(ref.snapshot_id) for name, ref in table.refs().items() if name != branch]
    known = {each.snapshot_id for other in others for each in _chain(table, other)}
    own = [each for each in _chain(table, table.snapshot_by_name(branch)) if each.snapshot_id not in known]
    files = _own_files(table, own, data=not keep_files)
    fault_point("lake.before_discard")
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=branch)]
    if own:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=[each.snapshot_id for each in own]))
    try:
        _commit(table, _unmoved(table, branch), updates)
    except CommitFailedException as refused:
        # Whoever owned the branch was not dead: it has published it, or written to it, a moment ago.
        raise LostRace(f"{'.'.join(table.name())}: {branch} was changed while it was discarded. Run again.") from refused
    fault_point("lake.after_discard")
    _delete(table, files)


def _own_files(table: Table, snapshots: Sequence[Snapshot], *, data: bool) -> list[str]:
    """Files that these snapshots brought: their lists, the manifests they wrote and, with `data`, what those added.

    A torn or missing one of them must not keep a worthless branch alive: what cannot be listed is left to the sweep.
    """
    numbers = {each.snapshot_id for each in snapshots}
    found: list[str] = []
    for snapshot in snapshots:
        found.append(snapshot.manifest_list)
        for manifest in _readable(lambda: snapshot.manifests(table.io)):  # noqa: B023  (called at once)
            if manifest.added_snapshot_id not in numbers or manifest.manifest_path in found:
                continue
            found.append(manifest.manifest_path)
            if data:
                entries = _readable(lambda: manifest.fetch_manifest_entry(table.io, discard_deleted=True))  # noqa: B023
                found += [entry.data_file.file_path for entry in entries if entry.snapshot_id in numbers]
    return found


def _readable(listed: Callable[[], Iterable[T]]) -> list[T]:
    """What a file lists; nothing, if it is gone or torn: Avro and the file systems have many errors for that."""
    try:
        return list(listed())
    except Exception as error:
        log.warning("a file of a discarded branch could not be read (%s); the sweep removes its files", type(error).__name__)
        return []


def _delete(table: Table, files: Sequence[str]) -> None:
    """Best effort: nothing refers to these files any more, and upkeep removes what stays."""
    for path in files:
        folder, _, name = path.rpartition("/")
        # Java keeps a checksum next to every local file that it writes.
        local = "://" not in path or path.startswith("file:")
        for each in (path, f"{folder}/.{name}.crc") if local else (path,):
            with suppress(OSError):
                table.io.delete(each)


def _chain(table: Table, head: Snapshot | None) -> list[Snapshot]:
    """A snapshot and those that it was made from, newest first, as far back as the table remembers."""
    found: list[Snapshot] = []
    while head is not None:
        found.append(head)
        head = table.snapshot_by_id(head.parent_snapshot_id) if head.parent_snapshot_id is not None else None
    return found


def summary_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def contents_of(table: Table, snapshot: Snapshot) -> Contents:
    totals = {key: value for key, value in summary_of(snapshot).items() if key.startswith(TOTALS)}
    return Contents(snapshot.manifests(table.io), totals)


def staged_snapshots(table: Table, branch: str, base: int | None) -> list[Snapshot]:
    """What a run has put onto its branch, newest first."""
    chain = _chain(table, table.snapshot_by_name(branch))
    return list(takewhile(lambda each: each.snapshot_id != base, chain))


def taken_back(table: Table, snapshot: int | None, sequence: int | None = None) -> bool:
    """Whether what is published does not come from this snapshot. No, where too much has been forgotten to know.

    `sequence` is the snapshot's number: a head with a lower one is older, also when the snapshot itself was expired.
    """
    known = table.snapshot_by_id(snapshot) if snapshot is not None else None
    head = table.current_snapshot()
    if snapshot is not None and head is None:
        return True
    if sequence is not None and head is not None and (head.sequence_number or 0) < sequence:
        return True
    if known is None or known.sequence_number is None:
        return False
    while head is not None and (head.sequence_number or 0) > known.sequence_number:
        if head.parent_snapshot_id is None:
            return True
        head = table.snapshot_by_id(head.parent_snapshot_id)
    return head is not None and head.snapshot_id != known.snapshot_id


def publish(table: Table, publication: Publication) -> int | None:
    """Commits it; returns the snapshot that is published afterwards. Of two from the same base one gets there."""
    schema, updates = _schema_updates(table, publication.schema)
    snapshot = publication.contents
    if isinstance(snapshot, Contents):
        snapshot = _snapshot(table, publication, snapshot, schema)
        updates.append(AddSnapshotUpdate(snapshot=snapshot))
    if snapshot is not None:
        updates.append(_ref_at(MAIN, snapshot.snapshot_id))
    passed = _passed(table, publication, snapshot)
    if publication.branch:
        updates.append(RemoveSnapshotRefUpdate(ref_name=publication.branch))
    if passed:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=[each.snapshot_id for each in passed]))
    stays = snapshot if snapshot is not None else table.current_snapshot()
    left = snapshot.snapshot_id if snapshot is not None else publication.base
    # With the snapshot: properties stay when somebody rolls the table back, and must not name a run that is gone with it.
    record = {**publication.record, "run_id": publication.run_id, SNAPSHOT: left}
    record |= {SEQUENCE: stays.sequence_number} if stays else {}
    updates.append(SetPropertiesUpdate(updates={PUBLISHED: json.dumps(record)}))
    requirements: list[TableRequirement] = [
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN, snapshot_id=publication.base),
    ]
    if publication.branch:
        head = table.snapshot_by_name(publication.branch)
        if head is None:
            # Without it the commit would require that there is none, which holds for the very runs that it is to stop.
            raise _branch_gone(table, publication.run_id)
        requirements.append(AssertRefSnapshotId(ref=publication.branch, snapshot_id=head.snapshot_id))
    fault_point("lake.before_publish")
    try:
        _commit(table, requirements, updates)
    except CommitFailedException as refused:
        raise LostRace(
            f"{'.'.join(table.name())}: another run published first, or took over from this one. This run changed nothing; "
            "run again."
        ) from refused
    fault_point("lake.after_publish")
    _delete(table, [each.manifest_list for each in passed])
    return left


def _commit(table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> None:
    """Commits, and removes metadata files that the table no longer remembers: nobody else does for such a commit."""
    done = table.catalog.commit_table(table, tuple(requirements), tuple(updates))
    known = {entry.metadata_file for entry in done.metadata.metadata_log}
    _delete(table, [entry.metadata_file for entry in table.metadata.metadata_log if entry.metadata_file not in known])


def _ref_at(branch: str, snapshot: int) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=snapshot, **_KEPT_FOR_EVER)


def _unmoved(table: Table, branch: str) -> tuple[TableRequirement, ...]:
    """The table is the one that was read, and the branch is where it was."""
    head = table.refs()[branch].snapshot_id
    return AssertTableUUID(uuid=table.metadata.table_uuid), AssertRefSnapshotId(ref=branch, snapshot_id=head)


def _passed(table: Table, publication: Publication, published: Snapshot | None) -> list[Snapshot]:
    """What the branch passed through on its way: nobody is to read a run half-way."""
    if not publication.branch:
        return []
    return [each for each in staged_snapshots(table, publication.branch, publication.base) if each != published]


def _schema_updates(table: Table, schema: Schema | None) -> tuple[int, list[TableUpdate]]:
    """The number of the schema that holds from now on, and how it comes to hold."""
    if schema is None:
        return table.metadata.current_schema_id, []
    known = next((each for each in table.metadata.schemas if each.fields == schema.fields), None)
    if known is not None:
        return known.schema_id, [SetCurrentSchemaUpdate(schema_id=known.schema_id)]
    number = max(each.schema_id for each in table.metadata.schemas) + 1
    added = Schema(*schema.fields, schema_id=number)
    return number, [AddSchemaUpdate(schema_=added), SetCurrentSchemaUpdate(schema_id=number)]


def _snapshot(table: Table, publication: Publication, contents: Contents, schema: int) -> Snapshot:
    """A snapshot of these contents. Manifests are taken over as they are; only their list is written."""
    metadata = table.metadata
    number = metadata.new_snapshot_id()
    # Files of a shadow table were numbered there. Later deletes hold for files up to their own number only, so the
    # table counts on from the highest.
    sequence = max([metadata.next_sequence_number(), *(each.sequence_number for each in contents.manifests)])
    path = table.location_provider().new_metadata_location(f"snap-{number}-0-{uuid.uuid4()}.avro")
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=table.io.new_output(path),
        snapshot_id=number,
        parent_snapshot_id=publication.base,
        sequence_number=sequence,
        avro_compression="deflate",
    ) as writer:
        writer.add_manifests(list(contents.manifests))
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=publication.base,
        sequence_number=sequence,
        manifest_list=path,
        summary=Summary(Operation.OVERWRITE, **{**contents.totals, RUN_ID: publication.run_id, **publication.summary}),
        schema_id=schema,
    )


# --- shadow tables: where a run stages what a branch cannot hold, another schema or rewritten files ----------------------


def shadow(reader: LakeReader, name: str, run_id: str, schema: Schema | None = None) -> Table:
    """A second table of the same files, for one run and, if given, with another schema. No file is copied."""
    drop_shadow(reader, name, shadow_name(name, run_id))
    table = reader.existing(name)
    schemas, current = table.metadata.schemas, table.metadata.current_schema_id
    if schema is not None:
        current = max(each.schema_id for each in schemas) + 1
        schemas = [*schemas, Schema(*schema.fields, schema_id=current)]
    metadata = table.metadata.model_copy(
        update={
            "location": shadow_location(table),
            "schemas": schemas,
            "current_schema_id": current,
            "last_column_id": max(table.metadata.last_column_id, *(each.highest_field_id for each in schemas)),
            "properties": {key: value for key, value in table.properties.items() if key != PUBLISHED}
            | {COPIED: json.dumps([each.snapshot_id for each in table.snapshots()])},
            "refs": {ref: at for ref, at in table.metadata.refs.items() if ref == MAIN},
            **{key: [] for key in ("snapshot_log", "statistics", "partition_statistics")},
        }
    )
    return _registered(reader, name, run_id, metadata, table)


def take_over_shadow(reader: LakeReader, name: str, found: str, run_id: str) -> Table:
    """What a stopped run has written so far, as the shadow of another run. The old one is gone from the catalogue then: a
    process that was only asleep, and wakes up, finds no table to write to."""
    old = reader.existing(found)
    if found == shadow_name(name, run_id):
        return old
    made = _registered(reader, name, run_id, old.metadata, old)
    drop_shadow(reader, name, found)
    return made


def _registered(reader: LakeReader, name: str, run_id: str, metadata: TableMetadata, table: Table) -> Table:
    """A table of this metadata, and yet another table: nothing that was begun on the one can be committed to the other."""
    metadata = metadata.model_copy(update={"table_uuid": uuid.uuid4(), "metadata_log": []})
    path = f"{metadata.location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    fault_point("lake.before_shadow")
    reader.catalog.create_namespace_if_not_exists(SHADOWS)
    ToOutputFile.table_metadata(metadata, table.io.new_output(path))
    made = reader.catalog.register_table(shadow_name(name, run_id), path)
    fault_point("lake.after_shadow")
    return made


def shadow_location(table: Table) -> str:
    return f"{table.location()}{SHADOW}"


def drop_shadow(reader: LakeReader, name: str, shadowed: str) -> None:
    """Takes a shadow of a table out of the catalogue, with the files that only it refers to: those that were not published
    and that no other run took over."""
    found = reader.table(shadowed)
    if found is None:
        return
    table = reader.table(name)
    published = {each.snapshot_id for each in table.snapshots()} if table else set()
    published |= set(json.loads(found.properties.get(COPIED, "[]")))
    # Without its table nobody can say what is in use: the files are left to the sweep.
    own = [each for each in found.snapshots() if each.snapshot_id not in published] if table else []
    # Whoever rewrote manifests since: what any snapshot of the table refers to was published, and stays.
    others = [name, *(each for each in reader.shadows(name) if each != shadowed)] if own else []
    used = set().union(*map(reader.referenced, others))
    files = [path for path in _own_files(found, own, data=True) if plain_path(path) not in used]
    logged = [found.metadata_location, *(entry.metadata_file for entry in found.metadata.metadata_log)]
    fault_point("lake.before_drop_shadow")
    with suppress(NoSuchTableError):  # its run was not dead, and has dropped it
        reader.catalog.drop_table(shadowed)
    fault_point("lake.after_drop_shadow")
    _delete(found, [*files, *logged])
