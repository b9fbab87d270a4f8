"""Files as a source: what is new, what was replaced, what is broken. No Spark."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.connectors.contract import REJECTED
from tidemark.connectors.kinds import _files_seen
from tidemark.connectors.kinds._files_seen import File
from tidemark.connectors.kinds.files import FilesConnector
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SourceError, SourceUnreachable

pytestmark = pytest.mark.fast


@pytest.fixture
def stream() -> StreamSpec:
    return StreamSpec.model_validate(
        {"id": "sales.orders", "key": ["id"], "cursor": "_file_checkpoint", "cursor_type": "text"}
    )


def connector(folder: Path, **settings: Any) -> FilesConnector:
    return FilesConnector({"path": str(folder), **settings}, {})


def read(files: FilesConnector, stream: StreamSpec, checkpoint: str | None = None) -> list[dict[str, Any]]:
    """Records of what is pending, without where they are from."""
    found = []
    for slice in files.pending(stream, checkpoint, 2):
        for batch in files.read(stream, slice, 2):
            assert REJECTED not in (batch.schema.metadata or {})
            found += [{key: value for key, value in row.items() if not key.startswith("_")} for row in batch.to_pylist()]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    (folder / "orders").mkdir(parents=True)
    return folder


def put(folder: Path, name: str, content: bytes, modified: int | None = None) -> Path:
    path = folder / "orders" / name
    path.write_bytes(content)
    if modified is not None:
        os.utime(path, (modified, modified))
    return path


# --- the four rules of the seed ----------------------------------------------------------------------------------------


def test_it_respects_the_input_state_and_reads_nothing_older(folder: Path, stream: StreamSpec) -> None:
    files = connector(folder)
    put(folder, "a.csv", b"id,item\n1,pen\n", 1000)
    checkpoint = files.advanced(stream, None, files.pending(stream, None, 2))
    put(folder, "b.csv", b"id,item\n2,ink\n", 2000)
    assert read(files, stream, checkpoint) == [{"id": "2", "item": "ink"}]
    assert read(files, stream, None) == [{"id": "1", "item": "pen"}, {"id": "2", "item": "ink"}]


def test_the_state_is_beyond_all_files_of_all_slices_and_pages(folder: Path, stream: StreamSpec) -> None:
    files = connector(folder)
    for number in range(7):
        put(folder, f"{number}.csv", b"id,item\n" + b"".join(b"%d,pen\n" % id for id in range(5)), 1000 + number)
    slices = files.pending(stream, None, 3)
    pages = [page for slice in slices for page in files.read(stream, slice, 2)]
    assert sum(page.num_rows for page in pages) == 35
    assert len(pages) > len(slices)
    checkpoint = files.advanced(stream, None, slices)
    assert files.pending(stream, checkpoint, 3) == []
    # Of a part of the slices it is beyond that part, and the others are still to be read.
    rest = files.pending(stream, files.advanced(stream, None, slices[:1]), 3)
    assert sum(page.num_rows for slice in rest for page in files.read(stream, slice, 2)) < 35


def test_reading_a_window_twice_gives_the_same_records_and_so_lands_nothing_twice(folder: Path, stream: StreamSpec) -> None:
    files = connector(folder)
    put(folder, "a.jsonl", b'{"id": 1}\n{"id": 2}\n', 1000)
    slices = files.pending(stream, None, 2)
    first = [page.to_pylist() for slice in slices for page in files.read(stream, slice, 10)]
    put(folder, "b.jsonl", b'{"id": 3}\n', 2000)  # comes later, and changes nothing of what was planned
    again = [page.to_pylist() for slice in slices for page in connector(folder).read(stream, slice, 10)]
    assert again == first
    assert [row["id"] for page in first for row in page] == [1, 2]


def test_a_file_that_becomes_visible_late_is_read_however_old_it_says_it_is(folder: Path, stream: StreamSpec) -> None:
    """What a safety window is for other kinds: files are compared with all that were seen, not with a moment."""
    files = connector(folder)
    put(folder, "today.csv", b"id,item\n1,pen\n", 2_000_000)
    checkpoint = files.advanced(stream, None, files.pending(stream, None, 2))
    put(folder, "yesterday.csv", b"id,item\n2,ink\n", 1_000_000)
    assert read(files, stream, checkpoint) == [{"id": "2", "item": "ink"}]


# --- what is new ---------------------------------------------------------------------------------------------------------


def test_only_files_that_are_new_or_replaced_are_pending(folder: Path, stream: StreamSpec) -> None:
    files = connector(folder)
    put(folder, "a.csv", b"id,item\n1,pen\n", 1000)
    first = files.pending(stream, None, 2)
    checkpoint = files.advanced(stream, None, first)
    assert files.pending(stream, checkpoint, 2) == []
    put(folder, "late.csv", b"id,item\n2,ink\n", 500)  # visible late, with an earlier time
    put(folder, "a.csv", b"id,item\n1,pencil\n", 2000)
    assert read(files, stream, checkpoint) == [{"id": "2", "item": "ink"}, {"id": "1", "item": "pencil"}]


def test_a_file_that_was_only_touched_is_not_read_again(folder: Path, stream: StreamSpec) -> None:
    files = connector(folder)
    path = put(folder, "a.csv", b"id,item\n1,pen\n", 1000)
    checkpoint = files.advanced(stream, None, files.pending(stream, None, 2))
    os.utime(path, (3000, 3000))
    assert files.has_news(stream, checkpoint)
    assert files.pending(stream, checkpoint, 2) == []
    assert not files.has_news(stream, files.advanced(stream, checkpoint, [])), "its new time is noted"


def test_a_file_that_is_gone_is_forgotten(folder: Path, stream: StreamSpec) -> None:
    files = connector(folder)
    path = put(folder, "a.csv", b"id,item\n1,pen\n")
    checkpoint = files.advanced(stream, None, files.pending(stream, None, 2))
    path.unlink()
    assert json.loads(files.advanced(stream, checkpoint, []))["files"] == []


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.zst", "a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_every_format_gives_the_same_records(folder: Path, stream: StreamSpec, name: str) -> None:
    rows = [{"id": str(n), "item": f"thing, {n} é"} for n in range(5)]
    text = "id,item\n" + "".join(f'{row["id"]},"{row["item"]}"\n' for row in rows)
    if ".jsonl" in name:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    content = text.encode()
    if name.endswith(".gz"):
        content = gzip.compress(content)
    elif name.endswith(".zst"):
        content = pa.compress(content, codec="zstd", asbytes=True)
    path = put(folder, name, content)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    assert read(connector(folder), stream) == rows


def test_files_with_other_fields_are_read_together(folder: Path, stream: StreamSpec) -> None:
    put(folder, "a.jsonl", b'{"id": "1", "size": 3}\n', 1)
    put(folder, "b.jsonl", b'{"id": "2", "colour": "red", "size": 4.5}\n', 2)
    assert read(connector(folder), stream) == [
        {"id": "1", "size": 3.0, "colour": None}, {"id": "2", "size": 4.5, "colour": "red"},
    ]  # fmt: skip


def test_broken_lines_are_set_apart_and_the_others_are_read(folder: Path, stream: StreamSpec) -> None:
    put(folder, "a.csv", b"id,item\n1,pen\n2,ink,too,many\n3,cap\n", 1)
    put(folder, "b.jsonl", b'{"id": "4"}\n{"id": "5"\n[6]\n{"id": "7"}\n{"id": 8}\n', 2)
    files = connector(folder)
    records: list[str] = []
    broken: list[str] = []
    for slice in files.pending(stream, None, 2):
        for batch in files.read(stream, slice, 100):
            if REJECTED in (batch.schema.metadata or {}):
                broken += batch["text"].to_pylist()
            else:
                records += batch["id"].to_pylist()
    assert records == ["1", "3", "4", "7"]
    assert broken == ["2,ink,too,many", '{"id": "5"', "[6]", '{"id": 8}']


def test_what_landed_last_of_a_file_is_known_whatever_the_state_says_and_what_landed_before_is_not(
    folder: Path, stream: StreamSpec
) -> None:
    files = connector(folder)
    landed: list[tuple[str, int, int]] = []

    def known() -> list[str]:
        """Which contents of the files that would be read now count as landed, as a full run asks."""
        slices = files.pending(stream, None, 2)
        with duckdb.connect() as db:
            db.execute("CREATE TABLE bronze (cursor text, emitted_at bigint, arrival bigint)")
            db.executemany("INSERT INTO bronze VALUES (?, ?, ?)", [*landed, ("orders/gone.csv#sha256=" + "0" * 64, 0, 0)])
            again = files.reachable(stream, None, full=True, slices=slices, rows="bronze")
            found = {cursor for (cursor,) in db.execute(f"SELECT cursor FROM bronze WHERE {again}").fetchall()}
        cursors = [File(*each).checkpoint for slice in slices for each in slice.detail["files"]]
        return sorted(each.rpartition("#")[0] for each in cursors if each in found)

    def land() -> None:
        for slice in files.pending(stream, None, 2):
            for place, each in enumerate(slice.detail["files"]):
                landed.append((File(*each).checkpoint, len(landed), place))

    put(folder, "a.csv", b"id\n1\n", 1)
    put(folder, "it's #b.csv", b"id\n2\n", 1)
    land()
    assert known() == ["orders/a.csv", "orders/it's #b.csv"]
    put(folder, "a.csv", b"id\n9\n", 2)
    assert known() == ["orders/it's #b.csv"]
    land()
    put(folder, "a.csv", b"id\n1\n", 3)
    assert known() == ["orders/it's #b.csv"], "put back to what it once was, it is a change"
    assert files.reachable(stream, None, full=True, slices=[], rows="bronze") == "false"


# --- files of long ago -------------------------------------------------------------------------------------------------

DAY = 86_400


def taken(files: FilesConnector, stream: StreamSpec, checkpoint: str | None) -> tuple[list[str], str]:
    """The files that a run reads, and the state after it."""
    slices = files.pending(stream, checkpoint, 2)
    names = [Path(each[0]).name for slice in slices for each in slice.detail["files"]]
    return names, files.advanced(stream, checkpoint, slices)


@pytest.fixture
def years(folder: Path, stream: StreamSpec) -> tuple[FilesConnector, str]:
    """Three files a day for 400 days, all of them read."""
    for day in range(400):
        for part in "abc":
            put(folder, f"{day:03}{part}.csv", b"id\n1\n", day * DAY + 60)
    files = connector(folder)
    names, checkpoint = taken(files, stream, None)
    assert len(names) == 1200
    return files, checkpoint


def test_the_state_names_the_files_of_the_last_days_and_keeps_a_digest_of_every_day_before(
    years: tuple[FilesConnector, str], stream: StreamSpec
) -> None:
    files, checkpoint = years
    kept = json.loads(checkpoint)
    assert [Path(path).name for path, *_ in kept["files"]][::3] == [f"{day}a.csv" for day in range(392, 400)]
    assert len(kept["digests"]) == 392
    assert len(checkpoint) < 25_000
    assert files.pending(stream, checkpoint, 2) == []
    assert not files.has_news(stream, checkpoint)


def test_files_of_long_ago_that_come_late_or_are_replaced_are_found_and_no_other_day_is_read_again(
    folder: Path, years: tuple[FilesConnector, str], stream: StreamSpec
) -> None:
    files, checkpoint = years
    put(folder, "late.csv", b"id\n2\n", 100 * DAY)
    assert files.has_news(stream, checkpoint)
    names, checkpoint = taken(files, stream, checkpoint)
    assert sorted(names) == ["100a.csv", "100b.csv", "100c.csv", "late.csv"]
    assert not files.has_news(stream, checkpoint)
    put(folder, "200b.csv", b"id\n22\n", 200 * DAY + 60)  # as large a time as before
    names, checkpoint = taken(files, stream, checkpoint)
    assert sorted(names) == ["200a.csv", "200b.csv", "200c.csv"]
    put(folder, "300b.csv", b"id\n3\n", 399 * DAY)  # replaced: it is of another day now
    names, checkpoint = taken(files, stream, checkpoint)
    assert sorted(names) == ["300a.csv", "300b.csv", "300c.csv"]
    assert taken(files, stream, checkpoint)[0] == []


def test_days_whose_files_are_gone_leave_nothing_in_the_state(
    folder: Path, years: tuple[FilesConnector, str], stream: StreamSpec
) -> None:
    files, checkpoint = years
    for path in (folder / "orders").glob("[012]*.csv"):
        path.unlink()
    names, checkpoint = taken(files, stream, checkpoint)
    assert names == []
    assert len(json.loads(checkpoint)["digests"]) == 92
    put(folder, "007a.csv", b"id\n1\n", 7 * DAY + 60)  # and is there again
    assert taken(files, stream, checkpoint)[0] == ["007a.csv"]


def test_a_day_of_many_files_has_many_digests_and_a_file_from_the_future_makes_none_old(
    folder: Path, stream: StreamSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files_seen, "TOGETHER", 4)
    for number in range(40):
        put(folder, f"{number}.csv", b"id\n1\n", 5 * DAY)
    put(folder, "future.csv", b"id\n1\n", 100_000 * DAY)
    files = connector(folder, look_back="P1D")
    _, checkpoint = taken(files, stream, None)
    assert len(json.loads(checkpoint)["files"]) == 41
    put(folder, "new.csv", b"id\n1\n", 9 * DAY)
    _, checkpoint = taken(files, stream, checkpoint)
    assert len(json.loads(checkpoint)["files"]) == 2
    assert [len(each) for each in json.loads(checkpoint)["digests"].values()] == [10]
    put(folder, "late.csv", b"id\n1\n", 5 * DAY)
    names, checkpoint = taken(files, stream, checkpoint)
    assert "late.csv" in names
    assert len(names) < 20
    assert taken(files, stream, checkpoint)[0] == []


def test_a_state_of_before_there_were_digests_is_read_on_from(folder: Path, stream: StreamSpec) -> None:
    put(folder, "a.csv", b"id\n1\n", 1000)
    files = connector(folder)
    kept = json.loads(taken(files, stream, None)[1])
    assert files.pending(stream, json.dumps(kept["files"]), 2) == []


def test_a_plan_whose_files_have_changed_since_cannot_be_resumed(folder: Path, stream: StreamSpec) -> None:
    put(folder, "a.csv", b"id\n1\n", 1)
    files = connector(folder)
    slices = files.pending(stream, None, 2)
    assert files.resumable(slices)
    put(folder, "a.csv", b"id\n22\n", 2)
    assert not files.resumable(slices)


def test_unquoted_nothing_is_null_and_quoted_nothing_is_text(folder: Path, stream: StreamSpec) -> None:
    put(folder, "a.csv", b'id,item\n1,\n2,""\n')
    assert read(connector(folder), stream) == [{"id": "1", "item": None}, {"id": "2", "item": ""}]


def test_truncated_and_foreign_files_are_named(folder: Path, stream: StreamSpec) -> None:
    put(folder, "a.csv.gz", gzip.compress(b"id,item\n" + b"1,pen\n" * 50_000)[:-20])
    with pytest.raises(SourceError, match=r"orders/a\.csv\.gz is damaged or no csv"):
        read(connector(folder), stream)
    put(folder, "a.csv.gz", gzip.compress(b"id\n1\n"))
    put(folder, "b.parquet", b"<html>504</html>")
    with pytest.raises(SourceError, match=r"orders/b\.parquet is damaged or no parquet"):
        read(connector(folder), stream)


def test_a_file_replaced_between_planning_and_reading_is_named(folder: Path, stream: StreamSpec) -> None:
    files = connector(folder)
    put(folder, "a.csv", b"id,item\n1,pen\n")
    (slice,) = files.pending(stream, None, 2)
    put(folder, "a.csv", b"id,item\n1,ink\n")
    with pytest.raises(SourceError, match="was replaced while it was read"):
        list(files.read(stream, slice, 10))


def test_wrong_settings_and_missing_folders_are_told(tmp_path: Path, stream: StreamSpec) -> None:
    with pytest.raises(ConfigError, match="unknown: folder"):
        FilesConnector({"folder": "x"}, {})
    with pytest.raises(ConfigError, match="`path` is missing"):
        FilesConnector({}, {})
    with pytest.raises(ConfigError, match="format must be one of"):
        connector(tmp_path, format="xml")
    with pytest.raises(ConfigError, match="look_back is not an ISO 8601 duration"):
        connector(tmp_path, look_back="a week")
    with pytest.raises(SourceUnreachable, match="there is no such folder"):
        connector(tmp_path / "none").pending(stream, None, 2)
    (tmp_path / "orders").mkdir()
    put(tmp_path, "a.dat", b"x")
    with pytest.raises(ConfigError, match="its name does not show its format"):
        connector(tmp_path).discover(stream)
