"""Which rows two snapshots do not share, by their files and the places that deletes name."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.lake import LakeReader, LakeSettings, SnapshotFiles, rows_only_in

pytestmark = pytest.mark.fast

SCHEMA = pa.schema([("id", pa.int64())])


class Files:
    """Data files of ten rows each, and files of deletes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def data(self, name: str, first: int) -> str:
        path = self.folder / f"{name}.parquet"
        pq.write_table(pa.table({"id": range(first, first + 10)}, SCHEMA), path)
        return str(path)

    def deletes(self, name: str, *places: tuple[str, int]) -> str:
        path = self.folder / f"{name}.parquet"
        pq.write_table(
            pa.table({"file_path": [f"file:{file}" for file, _ in places], "pos": [at for _, at in places]}), path
        )
        return str(path)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def ids(rows: str) -> list[int]:
    with duckdb.connect() as db:
        return sorted(row[0] for row in db.execute(f"SELECT id FROM {rows}").fetchall())


def snapshot(data: list[str], deletes: dict[str, set[str]] | None = None) -> SnapshotFiles:
    return SnapshotFiles(dict.fromkeys(data, 10), {path: frozenset(of) for path, of in (deletes or {}).items()}, SCHEMA)


def both_ways(one: SnapshotFiles, other: SnapshotFiles) -> tuple[list[int], list[int]]:
    """Rows of each that the other lacks; checked against all rows of both."""
    found = ids(rows_only_in(one, other)), ids(rows_only_in(other, one))
    first, second = set(ids(one.sql)), set(ids(other.sql))
    assert found == (sorted(first - second), sorted(second - first))
    return found


def test_files_that_both_have_hold_no_other_rows(files: Files) -> None:
    a, b = files.data("a", 0), files.data("b", 10)
    gone = files.deletes("d", (a, 3))
    assert both_ways(snapshot([a, b], {a: {gone}}), snapshot([a, b], {a: {gone}})) == ([], [])


def test_a_new_delete_and_a_new_file_are_found(files: Files) -> None:
    a, b, c = files.data("a", 0), files.data("b", 10), files.data("c", 20)
    gone = files.deletes("d", (a, 3), (a, 4), (b, 0))
    lost, gained = both_ways(snapshot([a, b]), snapshot([a, b, c], {a: {gone}, b: {gone}}))
    assert (lost, gained) == ([3, 4, 10], list(range(20, 30)))


def test_deletes_that_were_rewritten_into_another_file_are_no_change(files: Files) -> None:
    a = files.data("a", 0)
    old, rewritten = files.deletes("d1", (a, 3)), files.deletes("d2", (a, 3), (a, 7))
    assert both_ways(snapshot([a], {a: {old}}), snapshot([a], {a: {rewritten}})) == ([7], [])


def test_a_row_that_came_back_to_life_is_found(files: Files) -> None:
    a = files.data("a", 0)
    old, new = files.deletes("d1", (a, 3), (a, 5)), files.deletes("d2", (a, 5), (a, 6))
    assert both_ways(snapshot([a], {a: {old}}), snapshot([a])) == ([], [3, 5])
    assert both_ways(snapshot([a], {a: {old}}), snapshot([a], {a: {new}})) == ([6], [3])


def test_of_a_file_that_goes_as_a_whole_only_the_rows_that_lived_are_lost(files: Files) -> None:
    a, b = files.data("a", 0), files.data("b", 10)
    gone = files.deletes("d", (a, 0), (a, 1))
    lost, gained = both_ways(snapshot([a, b], {a: {gone}}), snapshot([b]))
    assert (lost, gained) == (list(range(2, 10)), [])
    assert ids(rows_only_in(snapshot([b]), None)) == list(range(10, 20))


def test_rows_are_counted_without_reading_them(files: Files) -> None:
    a, b = files.data("a", 0), files.data("b", 10)
    twice, once = files.deletes("d1", (a, 0), (a, 1)), files.deletes("d2", (a, 1), (b, 4))
    both = snapshot([a, b], {a: {twice, once}, b: {once}})
    assert LakeReader(LakeSettings()).live(both) == len(ids(both.sql)) == 17


def test_deletes_of_many_files_are_one_join_and_files_have_any_name(files: Files) -> None:
    paths = [files.data(f"a[{number}]? é", 10 * number) for number in range(40)]
    gone = {path: {files.deletes(f"d{number}", (path, 2))} for number, path in enumerate(paths)}
    before, after = snapshot(paths), snapshot(paths, gone)
    assert len(ids(after.sql)) == 360
    assert both_ways(before, after) == ([10 * number + 2 for number in range(40)], [])
    assert (after.sql.count("JOIN"), rows_only_in(before, after).count("JOIN")) == (1, 1)
