"""What becomes of a slice that cannot be read, without Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from spark_code.connectors import slices
from spark_code.connectors.slices import QUARANTINE, ParquetFiles, SliceLander
from tidemark.connectors.contract import Slice
from tidemark.connectors.landing import SliceDone
from tidemark.errors import SliceFailed

pytestmark = pytest.mark.fast


class Stumbling(SliceLander):
    """Fails at the slice 1, and notes which it began."""

    def __init__(self) -> None:
        object.__setattr__(self, "begun", [])

    def land(self, slice: Slice) -> SliceDone:
        self.begun.append(slice.number)  # type: ignore[attr-defined]
        if slice.number == 1:
            raise SliceFailed("slice 1 could not be read.")
        return SliceDone(slice.number, 1, 1, 0, 0, (), ())


def test_after_a_slice_that_failed_no_other_of_its_group_is_begun_and_the_next_run_is_free() -> None:
    lander = Stumbling()
    told = [lander.told(Slice(number), "a run") for number in range(3)]
    assert [list(each) for each in told] == [["done"], ["failed"], []]
    assert list(lander.told(Slice(2), "the run after it")) == ["done"]
    assert lander.begun == [0, 1, 2]  # type: ignore[attr-defined]


def test_small_pages_share_row_groups_and_large_files_are_followed_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "ROWS_PER_GROUP", 10)
    monkeypatch.setattr(slices, "ROWS_PER_FILE", 30)
    page = pa.record_batch([pa.nulls(4, field.type) for field in QUARANTINE], schema=QUARANTINE)
    files = ParquetFiles(PyArrowFileIO({}), f"{tmp_path}/part", QUARANTINE)
    for _ in range(13):
        files.write(page)
        files.write(page.slice(0, 0))
    paths = files.close()
    groups = [
        [content.metadata.row_group(number).num_rows for number in range(content.num_row_groups)]
        for content in map(pq.ParquetFile, paths)
    ]
    assert groups == [[12, 12, 12], [12, 4]]
    assert files.rows == 52


def test_wide_rows_are_not_collected_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "BYTES_PER_GROUP", 1000)
    files = ParquetFiles(PyArrowFileIO({}), f"{tmp_path}/part", pa.schema([("text", pa.string())]))
    for _ in range(4):
        files.write(pa.record_batch([["x" * 600]], names=["text"]))
    (path,) = files.close()
    assert pq.ParquetFile(path).num_row_groups == 2


def test_files_of_wide_rows_are_full_before_they_have_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "BYTES_PER_GROUP", 1000)
    monkeypatch.setattr(slices, "BYTES_PER_FILE", 2000)
    files = ParquetFiles(PyArrowFileIO({}), f"{tmp_path}/part", pa.schema([("text", pa.string())]))
    for _ in range(8):
        files.write(pa.record_batch([["x" * 600]], names=["text"]))
    assert [pq.ParquetFile(path).metadata.num_rows for path in files.close()] == [4, 4]


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    files = ParquetFiles(PyArrowFileIO({}), f"{tmp_path}/part", QUARANTINE)
    assert files.close() == ()
    assert list(tmp_path.iterdir()) == []
