"""The sweep of the lake removes what nobody refers to, and nothing that another catalogue may refer to."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.services.s3 import S3Server
from tidemark.lake import LakeReader, LakeSettings
from tidemark.lake_sweep import MINIMUM_AGE, Swept, sweep
from tidemark.store import LocalStore, ObjectStore

NAME = "models.orders"
ROWS = pa.table({"id": [1, 2, 3]})


@dataclass
class LakeInTest:
    """One table, its folder in a store, and a catalogue in a file that can be copied and put back."""

    store: ObjectStore
    catalogue: Path
    properties: dict[str, str] = field(default_factory=dict)

    def reader(self, catalogue: str = "lake.db") -> LakeReader:
        uri = f"sqlite:///{self.catalogue / catalogue}"
        return LakeReader(
            LakeSettings({"type": "sql", "uri": uri, "warehouse": f"{self.store.root}/lake", **self.properties})
        )

    def create(self, name: str = NAME) -> Table:
        self.catalogue.mkdir(parents=True, exist_ok=True)
        catalog = self.reader().catalog
        catalog.create_namespace_if_not_exists("models")
        return catalog.create_table(name, ROWS.schema)

    def append(self, catalogue: str = "lake.db", name: str = NAME) -> None:
        self.reader(catalogue).catalog.load_table(name).append(ROWS)

    def expire_all_but_the_last(self) -> None:
        table = self.reader().catalog.load_table(NAME)
        current = table.metadata.current_snapshot_id
        table.maintenance.expire_snapshots().by_ids(
            [s.snapshot_id for s in table.snapshots() if s.snapshot_id != current]
        ).commit()

    def copy(self, into: str, of: str = "lake.db") -> None:
        shutil.copy(self.catalogue / of, self.catalogue / into)

    def sweep(self, *, after: timedelta = MINIMUM_AGE * 2, catalogue: str = "lake.db", more: Iterable[str] = ()) -> Swept:
        """As seen so much later: files are as old as they are."""
        return sweep(self.reader(catalogue), self.store, NAME, now=datetime.now(UTC) + after, more=more)

    def files(self) -> set[str]:
        return {info.key for info in self.store.list("lake")}

    def rows(self, catalogue: str = "lake.db", name: str = NAME) -> int:
        return len(self.reader(catalogue).catalog.load_table(name).scan().to_arrow())


@pytest.fixture
def local_lake(tmp_path: Path) -> LakeInTest:
    return LakeInTest(LocalStore(str(tmp_path / "store")), tmp_path / "control")


@pytest.fixture
def s3_lake(s3_store: ObjectStore, server: S3Server, tmp_path: Path) -> LakeInTest:
    access = {"s3.access-key-id": server.access_key, "s3.secret-access-key": server.secret_key}
    address = {"s3.endpoint": server.endpoint, "s3.region": server.region}
    return LakeInTest(s3_store, tmp_path / "control", access | address)


@pytest.fixture(
    params=[pytest.param("local_lake", marks=pytest.mark.fast), pytest.param("s3_lake", marks=pytest.mark.service)]
)
def lake(request: pytest.FixtureRequest) -> LakeInTest:
    """With two commits, and in a folder that has a neighbour."""
    lake: LakeInTest = request.getfixturevalue(request.param)
    lake.create()
    lake.append()
    lake.append()
    lake.store.put("lake/models/orders_other/data/neighbour.parquet", b"1")
    return lake


@pytest.fixture
def local(local_lake: LakeInTest) -> LakeInTest:
    local_lake.create()
    local_lake.append()
    local_lake.append()
    return local_lake


def test_a_young_stray_stays_an_old_one_goes_and_what_is_referred_to_stays(lake: LakeInTest) -> None:
    used = lake.files()
    lake.store.put("lake/models/orders/data/stray.parquet", b"1")
    lake.store.put("lake/models/orders/data/.stray.parquet.crc", b"1")
    assert lake.sweep(after=MINIMUM_AGE - timedelta(minutes=1)) == Swept(removed=0, kept_young=2)
    assert lake.files() > used
    assert lake.sweep() == Swept(removed=2, kept_young=0)
    assert lake.files() == used
    assert lake.sweep() == Swept()
    assert lake.rows() == 6


def test_what_expired_snapshots_leave_behind_is_removed(lake: LakeInTest) -> None:
    reader = lake.reader()
    lake.reader().catalog.load_table(NAME).overwrite(ROWS)
    lake.expire_all_but_the_last()
    swept = lake.sweep()
    assert swept.refused is None
    assert swept.removed > 0
    known = {path.removeprefix("file:") for path in reader.referenced(NAME)}
    assert {lake.store.uri(key) for key in lake.files() if "/orders/" in key} == known
    assert lake.rows() == 3


def test_an_older_catalogue_that_was_put_back_removes_nothing(lake: LakeInTest) -> None:
    lake.copy("older.db")
    lake.append()
    used = lake.files()
    swept = lake.sweep(catalogue="older.db")
    assert swept.removed == 0
    assert swept.refused is not None
    assert "00003-" in swept.refused
    assert "Nothing was removed" in swept.refused
    assert lake.files() == used
    assert lake.rows() == 9
    # Not even when it goes on from there: the other one may still be in use.
    for _ in range(3):
        lake.append("older.db")
        lake.sweep(catalogue="older.db")
        assert lake.rows() == 9
    assert lake.sweep().refused
    assert lake.rows("older.db") == 15


def test_two_catalogues_of_one_folder_remove_nothing_of_each_other(lake: LakeInTest) -> None:
    lake.copy("second.db")
    for catalogue in ("lake.db", "second.db", "second.db", "lake.db"):
        lake.append(catalogue)
    # Both are at the same number, and the one that sweeps has committed last.
    for catalogue in ("lake.db", "second.db"):
        assert lake.sweep(catalogue=catalogue).refused
    assert lake.rows("lake.db") == lake.rows("second.db") == 12


def test_commits_that_are_declared_dead_no_longer_stop_the_sweep(lake: LakeInTest) -> None:
    lake.copy("older.db")
    lake.append()
    lake.append()
    lake.append("older.db")
    lake.store.put("lake/models/orders/data/stray.parquet", b"1")
    assert "/00004-" in str(lake.sweep(catalogue="older.db").refused)  # the newest first
    while refused := lake.sweep(catalogue="older.db").refused:
        # As the message says.
        (newer,) = [key for key in lake.files() if lake.store.uri(key) in refused]
        lake.store.delete(newer)
    assert "lake/models/orders/data/stray.parquet" not in lake.files()
    assert lake.rows("older.db") == 9


@pytest.mark.fast
def test_a_commit_without_snapshots_shows_another_catalogue_too(local: LakeInTest) -> None:
    local.copy("older.db")
    with local.reader().catalog.load_table(NAME).transaction() as change:
        change.set_properties(comment="by another catalogue")
    assert local.sweep(catalogue="older.db").refused


@pytest.mark.fast
def test_a_table_that_another_catalogue_made_again_in_the_same_folder_is_not_removed(local: LakeInTest) -> None:
    local.copy("older.db")
    local.reader().catalog.drop_table(NAME)
    local.create()
    local.append()
    assert local.sweep(catalogue="older.db").refused
    assert local.rows() == 3
    # The catalogue that made it again knows that the first one is gone.
    assert local.sweep().refused is None
    assert {key for key in local.files() if "/orders/" in key} == {
        path.removeprefix(f"{local.store.root}/") for path in local.reader().referenced(NAME)
    }


@pytest.mark.fast
def test_metadata_that_dropped_out_of_the_log_is_no_other_catalogues(
    local: LakeInTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local.reader().catalog.load_table(NAME).transaction() as change:
        change.set_properties(**{"write.metadata.previous-versions-max": "2"})
    for _ in range(5):
        local.append()
    assert local.sweep(after=timedelta(0)).refused is None
    known = local.reader().referenced(NAME)
    for path in Path(local.store.root).rglob("*.metadata.json"):
        if str(path) not in known:
            an_hour_ago = path.stat().st_mtime - 3600
            os.utime(path, (an_hour_ago, an_hour_ago))
    # There may be thousands of them: as a rule they are not even read.
    monkeypatch.setattr(local.store, "find", None)
    swept = local.sweep()
    assert swept.refused is None
    assert swept.removed > 0
    assert local.rows() == 21


KILLED = """
import os, signal, sys
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import snapshot
from tidemark.lake import LakeReader, LakeSettings

where, uri, warehouse = sys.argv[1:]
catalog = LakeReader(LakeSettings({"type": "sql", "uri": uri, "warehouse": warehouse})).catalog
table = catalog.load_table("models.orders")
if where == "before metadata":
    SqlCatalog._update_and_stage_table = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
else:
    write = SqlCatalog._write_metadata

    def written(*given, **named):
        write(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    SqlCatalog._write_metadata = staticmethod(written)
table.append(pa.table({"id": [1, 2, 3]}))
"""


@pytest.mark.fault
@pytest.mark.parametrize("where", ["before metadata", "after metadata"])
def test_files_of_a_killed_writer_are_removed_when_they_are_old(local: LakeInTest, where: str) -> None:
    used = local.files()
    uri, warehouse = f"sqlite:///{local.catalogue / 'lake.db'}", f"{local.store.root}/lake"
    child = subprocess.run([sys.executable, "-c", KILLED, where, uri, warehouse])
    assert child.returncode == -signal.SIGKILL
    left = local.files() - used
    assert left
    if where == "after metadata":
        # Metadata with a higher number: nobody can tell yet that no catalogue committed it.
        assert local.sweep().refused
        local.append()
        # It may as well be the only commit of another catalogue, until the log of this one has moved on.
        assert local.sweep() == Swept()
        with local.reader().catalog.load_table(NAME).transaction() as change:
            change.set_properties(**{"write.metadata.previous-versions-max": "1"})
        local.append()
    rows = local.rows()
    assert local.sweep(after=timedelta(0)).removed == 0
    local.sweep()
    assert not local.files() & left
    assert local.rows() == rows


@pytest.mark.fast
def test_half_a_metadata_file_is_what_a_killed_writer_left(local: LakeInTest) -> None:
    local.store.put("lake/models/orders/metadata/00099-half.metadata.json", b'{"table-uuid": "')
    assert local.sweep() == Swept(removed=1)


@pytest.mark.fast
def test_metadata_in_a_format_that_cannot_be_read_is_not_taken_for_half_a_file(local: LakeInTest) -> None:
    local.store.put("lake/models/orders/metadata/00099-whole.metadata.json", b'{"format-version": 9}')
    refused = local.sweep().refused
    assert refused is not None
    assert "in a format that this version cannot read" in refused


@pytest.mark.fast
def test_files_that_a_shadow_table_shares_stay_and_its_own_strays_go(local: LakeInTest) -> None:
    shadow = f"{NAME}__shadow"
    local.create(shadow)
    local.append(name=shadow)
    used = local.files()
    local.store.put("lake/models/orders__shadow/data/stray.parquet", b"1")
    assert local.sweep(more=[shadow]) == Swept(removed=1)
    assert local.files() == used

    local.reader().catalog.drop_table(shadow)
    left = {key for key in used if "__shadow/" in key}
    assert local.sweep(more=[shadow], after=MINIMUM_AGE - timedelta(minutes=1)) == Swept(kept_young=len(left))
    assert local.sweep(more=[shadow]) == Swept(removed=len(left))
    assert local.files() == used - left
    assert local.rows() == 6


@pytest.mark.fast
def test_a_shadow_table_that_another_catalogue_is_writing_to_stays(local: LakeInTest) -> None:
    shadow = f"{NAME}__shadow"
    local.copy("older.db")
    local.create(shadow)
    local.append(name=shadow)
    for key in local.files():
        if "__shadow/data" in key:
            long_ago = (datetime.now(UTC) - MINIMUM_AGE * 2).timestamp()
            os.utime(local.store.uri(key), (long_ago, long_ago))
    swept = local.sweep(catalogue="older.db", more=[shadow], after=timedelta(0))
    assert swept.removed == 0
    assert swept.kept_young > 0
    assert local.rows(name=shadow) == 3


@pytest.mark.fast
def test_a_lake_elsewhere_and_a_table_that_is_not_there_are_left_alone(local: LakeInTest, tmp_path: Path) -> None:
    elsewhere = LocalStore(str(tmp_path / "another"))
    now = datetime.now(UTC) + MINIMUM_AGE * 2
    assert sweep(local.reader(), elsewhere, NAME, now=now) == Swept()
    assert sweep(local.reader(), local.store, "models.nothing", now=now) == Swept()
    assert local.rows() == 6


@pytest.mark.fast
@pytest.mark.parametrize("scheme", ["file://", "file:"])
def test_a_place_may_be_spelled_in_several_ways(tmp_path: Path, scheme: str) -> None:
    lake = LakeInTest(LocalStore(str(tmp_path / "store")), tmp_path / "control")
    lake.properties["warehouse"] = f"{scheme}{lake.store.root}/lake"
    lake.create()
    lake.append()
    used = lake.files()
    lake.store.put("lake/models/orders/data/stray.parquet", b"1")
    assert lake.sweep() == Swept(removed=1)
    assert lake.files() == used


@pytest.mark.fast
def test_a_folder_in_which_the_catalogues_own_metadata_is_not_found_is_left_alone(local: LakeInTest, tmp_path: Path) -> None:
    """As when one path leads through a link and another does not: then none can be compared."""
    link = tmp_path / "link"
    os.symlink(local.store.root, link)
    table = local.reader().catalog.load_table(NAME)
    metadata = table.metadata.model_copy(update={"location": f"{link}/lake/models/orders"})
    path = table.metadata_location.removeprefix("file://")
    Path(path).write_text(metadata.model_dump_json())
    now = datetime.now(UTC) + MINIMUM_AGE * 2
    swept = sweep(local.reader(), LocalStore(str(link)), NAME, now=now)
    assert swept.refused is not None
    assert "check the spelling of the lake's address" in swept.refused
    assert local.rows() == 6
