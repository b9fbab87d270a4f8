"""What a small run of a stream costs does not grow with what has landed before. No Spark is needed to count that."""

import random
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import ManifestFile

from spark_code.connectors.bounds import append_files
from spark_code.connectors.known import NONE, Landed
from spark_code.connectors.plan import IngestPlan
from spark_code.connectors.subject import StreamSubject
from spark_code.lake import Lake
from spark_code.platform import Platform
from tidemark.config import load_config
from tidemark.connectors.bronze import bronze_schema
from tidemark.connectors.contract import Slice, Window
from tidemark.connectors.kinds._cdc_database import padded
from tidemark.connectors.kinds._files_seen import File
from tidemark.connectors.manifests import find_manifest
from tidemark.connectors.verification import verify_landing
from tidemark.lake import MAIN, LakeReader, SnapshotFiles, files_between, snapshot_files
from tidemark.publication import claim

pytestmark = pytest.mark.fast

START = datetime(2026, 1, 1, tzinfo=UTC)
FEW, MANY = 4, 24
SHA = "0123456789abcdef" * 4


class Bronze:
    """A stream whose runs land one file each, by pyiceberg; `times` counts them."""

    def __init__(self, folder: Path, kind: str, settings: dict[str, Any], fields: pa.Schema, **stream: Any) -> None:
        manifest = {"connector": "shop", "kind": kind, "settings": settings, "streams": [{"id": "orders", **stream}]}
        (folder / "shop.yaml").write_text(yaml.safe_dump(manifest))
        given = {"store": "store", "connectors": ["shop.yaml"], "tenants": ["t1"]}
        (folder / "tidemark.yaml").write_text(yaml.safe_dump(given))
        (folder / "store").mkdir()
        config = load_config(folder / "tidemark.yaml")
        found = find_manifest(config, "shop")
        self.folder, self.fields, self.times = folder, fields, 0
        self.subject = StreamSubject(Platform(config), "t1", found, found.stream("orders"))
        self.reader = self.subject.platform.reader
        SqlCatalog("lake", **{**self.subject.platform.lake_settings.for_python(), "init_catalog_tables": "true"})
        for namespace in ("bronze", "bronze.t1", "bronze.t1.shop"):
            self.reader.catalog.create_namespace(namespace)
        self.subject.bronze.prepared(bronze_schema(fields, ["id"]))

    def land(self, *rows: tuple[str | None, dict[str, Any]]) -> None:
        """A run that lands records, each with its cursor."""
        self.times += 1
        table = self.reader.existing(self.subject.place.table)
        landed = [self.row(place, cursor, record) for place, (cursor, record) in enumerate(rows)]
        path = str(self.folder / f"{self.times}.parquet")
        pq.write_table(pa.Table.from_pylist(landed, bronze_schema(self.fields, ["id"])), path, row_group_size=2)
        append_files(table, [path], self.subject.bounded, {}, MAIN)

    def row(self, place: int, cursor: str | None, record: dict[str, Any]) -> dict[str, Any]:
        return {
            "stream": "orders",
            "emitted_at": START + timedelta(hours=self.times),
            "cursor": cursor,
            "key": {"id": record["id"]},
            "record": record,
            "key_hash": sha256(str(record["id"]).encode()).digest(),
            "content_hash": sha256(repr((cursor, record)).encode()).digest(),
            "run_id": str(self.times),
            "operation": "upsert",
            "arrival": place,
        }

    @property
    def snapshot(self) -> int:
        return self.reader.published(self.subject.place.table).snapshot_id

    def landed(self, *, lower: str | None = None, committed: str | None = None, slices: tuple[Slice, ...] = ()) -> Landed:
        """What had landed, to a run that begins here."""
        schema = b64encode(self.fields.serialize()).decode()
        plan = IngestPlan("r", 1, False, committed, 0, lower, None, False, slices, 10, "", schema, "done")
        return Landed(self.subject, plan, self.snapshot)


# Of each kind: a stream, what its run of a number lands, and what a run after that number begins with.


def by_clock(folder: Path) -> Bronze:
    fields = pa.schema([("id", pa.int64()), ("changed", pa.timestamp("us", tz="UTC"))])
    url = {"url": "sqlite:///shop.db"}
    return Bronze(folder, "sql", url, fields, key=["id"], cursor="changed", safety_window="PT1H", null_cursor="include")


def by_number(folder: Path) -> Bronze:
    fields = pa.schema([("id", pa.int64()), ("number", pa.int64())])
    return Bronze(folder, "sql", {"url": "sqlite:///shop.db"}, fields, key=["id"], cursor="number", cursor_type="integer")


def by_file(folder: Path) -> Bronze:
    fields = pa.schema([("id", pa.int64())])
    return Bronze(folder, "files", {"path": str(folder)}, fields, key=["id"], source="*.jsonl")


def by_log(folder: Path) -> Bronze:
    fields = pa.schema([("id", pa.int64())])
    return Bronze(folder, "cdc", {"url": "postgresql://nobody@nowhere/shop"}, fields, key=["id"])


def by_offset(folder: Path) -> Bronze:
    fields = pa.schema([("id", pa.int64()), ("_partition", pa.int32()), ("_offset", pa.int64())])
    return Bronze(folder, "kafka", {"brokers": "nowhere:9092"}, fields, key=["id"])


def moment(number: int) -> datetime:
    return START + timedelta(days=number)


def text_of(number: int) -> str:
    return moment(number).isoformat().replace("+00:00", "Z")


def path_of(number: int) -> str:
    return f"a/folder/with/a/long/name/{number:05}.jsonl"


def rows_of(kind: str, number: int, keys: range) -> list[tuple[str | None, dict[str, Any]]]:
    if kind == "by_clock":
        return [(text_of(number), {"id": id, "changed": moment(number)}) for id in keys]
    if kind == "by_number":
        return [(str(number), {"id": id, "number": number}) for id in keys]
    if kind == "by_file":
        return [(f"{path_of(number)}#sha256={SHA}", {"id": id}) for id in keys]
    if kind == "by_log":
        return [(padded(number << 8), {"id": id}) for id in keys]
    return [(f"{id % 2}:{number * 10 + id}", {"id": id, "_partition": id % 2, "_offset": number * 10 + id}) for id in keys]


def begin_of(kind: str, number: int) -> dict[str, Any]:
    """What a run begins with that reads again what the run of this number landed, and what came later."""
    if kind == "by_clock":
        return {"lower": text_of(number)}
    if kind == "by_number":
        return {"lower": str(number)}
    if kind == "by_file":
        listed = [astuple(File(path_of(number), 1, 1, SHA))]
        return {"slices": (Slice(0, detail={"files": listed}),)}
    if kind == "by_log":
        return {"committed": f"0/{number << 8:X}"}
    offsets = {"0": number * 10, "1": number * 10}
    return {"committed": f'{{"topic_id": "t", "offsets": {str(offsets).replace(chr(39), chr(34))}, "key_types": {{}}}}'}


KINDS = {made.__name__: made for made in (by_clock, by_number, by_file, by_log, by_offset)}


@pytest.fixture(params=KINDS)
def bronze(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Bronze]]:
    made = KINDS[request.param](tmp_path)
    yield request.param, made
    made.subject.platform.control.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files DuckDB was given, each time."""
    found, own = [], LakeReader.files

    def counted(self: LakeReader, *given: Any) -> SnapshotFiles:
        files = own(self, *given)
        found.append(len(files.data))
        return files

    monkeypatch.setattr(LakeReader, "files", counted)
    return found


def test_a_small_run_reads_as_many_files_of_a_large_table_as_of_a_small_one(bronze, read):
    kind, stream = bronze
    seen = []
    for upto in (FEW, MANY):
        while stream.times < upto:
            stream.land(*rows_of(kind, stream.times + 1, range(3)))
        read.clear()
        hashes = stream.landed(**begin_of(kind, upto)).hashes()
        assert hashes.num_rows == 3, "the rows of the last run, and no others"
        seen.append(sum(read))
    assert seen[0] == seen[1] <= 2, seen


def test_the_hashes_are_those_that_all_files_give(bronze, monkeypatch):
    kind, stream = bronze
    chance = random.Random(7)
    for _ in range(12):
        numbers = [chance.randint(1, 14) for _ in range(2)]
        rows = [row for number in numbers for row in rows_of(kind, number, range(chance.randint(1, 5)))]
        if kind == "by_clock":
            rows.append((None, {"id": 9, "changed": None}))
        stream.land(*rows)
    for number in range(1, 16):
        found = set(stream.landed(**begin_of(kind, number)).hashes()["content_hash"].to_pylist())
        with monkeypatch.context() as patched:
            own = Landed._rows
            patched.setattr(Landed, "_rows", lambda self, _bounds, own=own: own(self, AlwaysTrue()))
            wanted = set(stream.landed(**begin_of(kind, number)).hashes()["content_hash"].to_pylist())
        assert found == wanted, number


def test_files_are_staged_and_checked_without_a_look_at_older_manifests(tmp_path, monkeypatch):
    stream, opened = by_clock(tmp_path), []
    own = ManifestFile.fetch_manifest_entry

    def counted(self: ManifestFile, *given: Any, **more: Any) -> Any:
        opened.append(self.manifest_path)
        return own(self, *given, **more)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    # As Spark makes the branch, without Spark.
    monkeypatch.setattr(Lake, "stage", lambda self, name, run_id: claim(self.reader.existing(name), run_id))
    seen = []
    for upto in (FEW, MANY):
        while stream.times < upto:
            stream.land(*rows_of("by_clock", stream.times + 1, range(3)))
        base, table = stream.snapshot, stream.reader.existing(stream.subject.place.table)
        (path,) = {*snapshot_files(table, base).data} - {*snapshot_files(table, table.snapshots()[-2].snapshot_id).data}
        copy = tmp_path / f"{upto}.parquet"
        copy.write_bytes(Path(path).read_bytes())
        opened.clear()
        staged = stream.subject.bronze.stage(f"run {upto}", [str(copy)], {})
        table_name, spec = stream.subject.place.table, stream.subject.stream
        results = verify_landing(stream.reader, table_name, base, staged, 3, spec, Window(), lambda _db: NONE)
        assert [each.passed for each in results] == [True] * 4
        seen.append(len(opened))
    assert seen[0] == seen[1] <= 2, seen
    table = stream.reader.existing(stream.subject.place.table)
    came, lost = files_between(table, table.snapshots()[0].snapshot_id, stream.snapshot)
    assert (len(came), lost) == (MANY - 1, set())
    assert len(files_between(table, stream.snapshot, table.snapshots()[0].snapshot_id)[1]) == MANY - 1
