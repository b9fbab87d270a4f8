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
    assert files.pending(stream, checkpoint, 2) == []


def test_a_file_that_is_gone_is_forgotten(folder: Path, stream: StreamSpec) -> None:
    files = connector(folder)
    path = put(folder, "a.csv", b"id,item\n1,pen\n")
    checkpoint = files.advanced(stream, None, files.pending(stream, None, 2))
    path.unlink()
    assert files.advanced(stream, checkpoint, []) == "[]"


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


def test_a_file_that_was_put_back_to_what_it_was_counts_as_new_and_others_do_not(folder: Path, stream: StreamSpec) -> None:
    put(folder, "a.csv", b"id\n1\n", 1)
    put(folder, "b.csv", b"id\n2\n", 1)
    files = connector(folder)
    slices = files.pending(stream, None, 2)
    first = files.advanced(stream, None, slices)
    pages = [page for slice in slices for page in files.read(stream, slice, 100)]
    before = {cursor for page in pages for cursor in page["_file_checkpoint"].to_pylist()}
    put(folder, "a.csv", b"id\n9\n", 2)
    second = files.advanced(stream, first, files.pending(stream, first, 2))
    with duckdb.connect() as db:
        rows = f"(SELECT unnest(?) AS cursor) WHERE {files.reachable(stream, second)}"
        known = {cursor for (cursor,) in db.execute(f"SELECT cursor FROM {rows}", [sorted(before)]).fetchall()}
    assert {each.partition("#")[0] for each in before} == {"orders/a.csv", "orders/b.csv"}
    assert {each.partition("#")[0] for each in known} == {"orders/b.csv"}
    assert files.reachable(stream, None) == "true"


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
    with pytest.raises(SourceUnreachable, match="there is no such folder"):
        connector(tmp_path / "none").pending(stream, None, 2)
    (tmp_path / "orders").mkdir()
    put(tmp_path, "a.dat", b"x")
    with pytest.raises(ConfigError, match="its name does not tell its format"):
        connector(tmp_path).discover(stream)
