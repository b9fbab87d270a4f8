"""Folders of files landed in Bronze: each file once, replaced ones again, broken lines apart."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.harness import SparkForTests
from tests.connectors.harness import Stream
from tests.services.s3 import S3Server
from tidemark.errors import ConfigError, SourceError


def files_stream(folder: Path, spark: SparkForTests, **words: Any) -> Stream:
    (folder / "in").mkdir(parents=True)
    return Stream.make(folder / "lake", spark, "files", {"path": str(folder / "in")}, key=["id"], **words)


def items(stream: Stream) -> list[tuple[str, str]]:
    return [(record["id"], record["item"]) for record in stream.latest()]


def test_each_file_is_landed_once_and_a_replaced_one_again(tmp_path: Path, spark: SparkForTests) -> None:
    stream, folder = files_stream(tmp_path, spark), tmp_path / "in"
    (folder / "a.csv").write_text("id,item\n1,pen\n2,ink\n")
    first = stream.run()
    assert first is not None
    assert (first.cursor_field, first.records_emitted) == ("_file_checkpoint", 2)
    assert stream.last_run.mode == "full"
    again = stream.run()
    assert again is not None
    assert (again.records_emitted, stream.last_run.status) == (0, "unchanged")

    (folder / "b.csv").write_text("id,item,colour\n2,ink,blue\n3,cap,red\n")
    stream.run()
    assert items(stream) == [("1", "pen"), ("2", "ink"), ("3", "cap")]
    assert [record["colour"] for record in stream.latest()] == [None, "blue", "red"]
    (folder / "a.csv").write_text("id,item\n1,pencil\n2,ink\n")
    stream.run()
    assert items(stream) == [("1", "pencil"), ("2", "ink"), ("3", "cap")]
    assert [path for path, *_ in json.loads(stream.state or "{}")["files"]] == ["a.csv", "b.csv"]
    before = len(stream.changes())
    stream.run(full=True)
    assert len(stream.changes()) == before


def test_a_file_that_was_away_lands_nothing_again_and_one_that_is_again_what_it_once_was_does(
    tmp_path: Path, spark: SparkForTests
) -> None:
    stream, folder = files_stream(tmp_path, spark), tmp_path / "in"
    (folder / "a.csv").write_text("id,item\n1,pen\n")
    (folder / "b.csv").write_text("id,item\n2,ink\n")
    stream.run()
    (folder / "a.csv").rename(tmp_path / "a.csv")
    stream.run()
    assert "a.csv" not in (stream.state or "")
    (tmp_path / "a.csv").rename(folder / "a.csv")
    stream.run()
    assert [record["item"] for record in stream.changes()] == ["pen", "ink"]
    assert (stream.last_run.detail["rows"]["read"], stream.last_run.status) == (1, "unchanged")
    assert stream.run() is not None
    assert stream.last_run.detail["rows"]["read"] == 0

    (folder / "a.csv").write_text("id,item\n1,pencil\n")
    stream.run()
    (folder / "a.csv").write_text("id,item\n1,pen\n")
    stream.run()
    assert items(stream) == [("1", "pen"), ("2", "ink")]
    assert [record["item"] for record in stream.changes()] == ["pen", "ink", "pencil", "pen"]
    stream.run(full=True)
    assert len(stream.changes()) == 4


def test_a_file_that_comes_to_days_of_long_ago_is_landed_and_its_neighbours_are_not_again(
    tmp_path: Path, spark: SparkForTests
) -> None:
    stream, folder = files_stream(tmp_path, spark), tmp_path / "in"
    for number, day in enumerate((100, 100, 200)):
        path = folder / f"{number}.csv"
        path.write_text(f"id,item\n{number},pen\n")
        os.utime(path, (day * 86_400, day * 86_400))
    stream.run()
    assert len(json.loads(stream.state or "{}")["digests"]) == 1
    (folder / "late.csv").write_text("id,item\n9,ink\n")
    os.utime(folder / "late.csv", (100 * 86_400, 100 * 86_400))
    stream.run()
    assert (stream.last_run.detail["rows"]["read"], stream.last_run.detail["rows"]["landed"]) == (3, 1)
    assert [record["id"] for record in stream.latest()] == ["0", "1", "2", "9"]
    stream.run()
    assert stream.last_run.detail["rows"]["read"] == 0


def test_the_quarantine_takes_a_record_once_however_often_it_is_read(tmp_path: Path, spark: SparkForTests) -> None:
    stream, folder = files_stream(tmp_path, spark), tmp_path / "in"
    (folder / "a.csv").write_text("id,item\n1,pen\n2,ink,too many\n2,ink,too many\n,nobody\n")
    stream.run()
    held = [row["record"] for row in stream.quarantine()]
    assert len(held) == 2
    stream.run(full=True)
    assert [row["record"] for row in stream.quarantine()] == held
    (folder / "b.csv").write_text("id,item\n2,ink,too many\n3,cap,too,many\n")
    stream.run(full=True)
    added = [row for row in stream.quarantine() if row["record"] not in held or "b.csv" in row["reason"]]
    assert sorted(row["record"] for row in added) == ["2,ink,too many", "3,cap,too,many"]
    assert len({row["run_id"] for row in stream.quarantine()}) == 2
    assert len(stream.quarantine()) == 4


def test_broken_lines_go_to_the_quarantine_with_their_reason(tmp_path: Path, spark: SparkForTests) -> None:
    stream, folder = files_stream(tmp_path, spark), tmp_path / "in"
    (folder / "a.csv").write_text("id,item\n1,pen\n2,ink,too many\n,nobody\n")
    stream.run()
    assert items(stream) == [("1", "pen")]
    held = {row["record"]: row["reason"] for row in stream.quarantine()}
    assert held["2,ink,too many"] == "a line of a.csv has not as many fields as its first"
    assert [reason for text, reason in held.items() if "nobody" in text] == ["a part of the key is missing"]


def test_a_file_that_cannot_be_read_stops_the_run_and_nothing_is_lost(tmp_path: Path, spark: SparkForTests) -> None:
    stream, folder = files_stream(tmp_path, spark), tmp_path / "in"
    (folder / "a.csv").write_text("id,item\n1,pen\n")
    stream.run()
    state = stream.state
    (folder / "b.csv").write_text("id,item\n2,ink\n")
    (folder / "c.parquet").write_bytes(b"<html>504</html>")
    with pytest.raises(SourceError, match=r"c\.parquet is damaged or no parquet"):
        stream.run()
    assert stream.state == state
    (folder / "c.parquet").unlink()
    stream.run()
    assert items(stream) == [("1", "pen"), ("2", "ink")]


def test_a_cursor_in_the_manifest_of_files_is_refused(tmp_path: Path, spark: SparkForTests) -> None:
    stream = files_stream(tmp_path, spark, cursor="changed")
    with pytest.raises(ConfigError, match="keeps its own progress"):
        stream.run()


@pytest.mark.service
def test_files_on_s3_are_read_like_those_in_a_folder(tmp_path: Path, spark: SparkForTests, s3: S3Server) -> None:
    bucket = s3.new_bucket()
    s3.client().put_object(Bucket=bucket, Key="in/a.csv", Body=b"id,item\n1,pen\n")
    settings = {"path": f"s3://{bucket}/in", "endpoint": s3.endpoint, "region": "us-east-1"}
    stream = Stream.make(tmp_path / "lake", spark, "files", settings, key=["id"])
    stream.run()
    s3.client().put_object(Bucket=bucket, Key="in/b.csv", Body=b"id,item\n2,ink\n")
    stream.run()
    assert items(stream) == [("1", "pen"), ("2", "ink")]
    assert stream.last_run.detail["rows"]["read"] == 1
