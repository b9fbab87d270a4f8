"""One commit that readers see: new rows, a new schema and what they mean change together, or not at all.

Iceberg keeps one schema a table, not one a branch, and Spark changes it in a commit of its own. Written here by hand, a
commit may hold all of it: whatever takes something away from readers happens in the moment that gives them the new rows.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table import Table
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
from tidemark.lake import MAIN

# Numbers of a summary that tell of a whole snapshot, and hold whichever table it is in.
TOTALS = "total-"


@dataclass(frozen=True)
class Contents:
    """The files of a snapshot that is to be published: its manifests, and what its summary says of them."""

    manifests: Sequence[ManifestFile]
    totals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Publication:
    """What is to change. `base` is what must still be published for any of it to happen."""

    base: int | None
    # A snapshot that is in the table already, contents for one that is made, or neither: then rows stay as they are.
    contents: Snapshot | Contents | None
    schema: Schema | None
    summary: Mapping[str, str]
    properties: Mapping[str, str]
    branch: str | None = None


def contents_of(table: Table, snapshot: Snapshot) -> Contents:
    said = snapshot.summary.additional_properties if snapshot.summary else {}
    totals = {key: value for key, value in said.items() if key.startswith(TOTALS)}
    return Contents(snapshot.manifests(table.io), totals)


def staged_snapshots(table: Table, branch: str, base: int | None) -> list[Snapshot]:
    """What a run has put onto its branch, newest first."""
    found: list[Snapshot] = []
    head = table.snapshot_by_name(branch)
    while head is not None and head.snapshot_id != base:
        found.append(head)
        head = table.snapshot_by_id(head.parent_snapshot_id) if head.parent_snapshot_id is not None else None
    return found


def taken_back(table: Table, snapshot: int | None) -> bool:
    """Whether what is published does not come from this snapshot. No, where too much has been forgotten to tell."""
    known = table.snapshot_by_id(snapshot) if snapshot is not None else None
    head = table.current_snapshot()
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
        updates.append(_main_at(snapshot))
    if publication.branch:
        updates += _without_branch(table, publication.branch, publication.base, snapshot)
    updates.append(SetPropertiesUpdate(updates=dict(publication.properties)))
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN, snapshot_id=publication.base),
    )
    fault_point("models.before_publish")
    try:
        table.catalog.commit_table(table, requirements, tuple(updates))
    except CommitFailedException as refused:
        raise LostRace(f"{'.'.join(table.name())}: another run published first; this one changed nothing. Run again.") from (
            refused
        )
    fault_point("models.after_publish")
    return snapshot.snapshot_id if snapshot else publication.base


def _main_at(snapshot: Snapshot) -> SetSnapshotRefUpdate:
    kept = {"max_ref_age_ms": None, "max_snapshot_age_ms": None, "min_snapshots_to_keep": None}
    return SetSnapshotRefUpdate(ref_name=MAIN, type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id, **kept)


def _without_branch(table: Table, branch: str, base: int | None, published: Snapshot | None) -> list[TableUpdate]:
    """The branch goes, and with it what it passed through: nobody is to read a run half-way."""
    passed = [each.snapshot_id for each in staged_snapshots(table, branch, base) if each != published]
    gone: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=branch)]
    return [*gone, RemoveSnapshotsUpdate(snapshot_ids=passed)] if passed else gone


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
    # Files of the table beside were numbered there. Later deletes hold for files up to their own number only, so the
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
        summary=Summary(Operation.OVERWRITE, **contents.totals, **publication.summary),
        schema_id=schema,
    )
