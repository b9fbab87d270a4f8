"""What every store promises, tried on a folder and on a real S3 server."""

import pickle
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tidemark.errors import ObjectChanged, ObjectMissing, UsageError
from tidemark.store import ObjectStore

LARGE = 32 * 1024 * 1024


def test_what_was_put_is_read_back(store: ObjectStore) -> None:
    etag = store.put("a/marker.txt", b"one")
    assert store.read("a/marker.txt") == b"one"
    found = store.find("a/marker.txt")
    assert found is not None
    assert (found.body, found.etag) == (b"one", etag)


@pytest.mark.parametrize("body", [b"", memoryview(b"xyz")[1:], pa.py_buffer(b"arrow"), pa.array([1, 2]).buffers()[1]])
def test_every_kind_of_body_is_written_as_its_bytes(store: ObjectStore, body: object) -> None:
    store.put("part", body)
    store.put_if_absent("other", body)
    assert store.read("part") == store.read("other") == bytes(memoryview(body))


def test_a_large_arrow_buffer_is_written_without_a_copy(store: ObjectStore) -> None:
    body = pa.allocate_buffer(LARGE)
    store.put("warm", b"clients and modules are loaded")
    tracemalloc.start()
    try:
        store.put("plain.parquet", body)
        store.put_if_absent("conditional.parquet", body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LARGE / 4
    assert store.read("plain.parquet") == store.read("conditional.parquet") == body.to_pybytes()


def test_an_absent_object_is_none_or_missing_by_name(store: ObjectStore) -> None:
    store.put("a/b", b"1")
    for key in ("nothing", "a/c", "a", "none/at/all"):
        assert store.find(key) is None
        assert store.head(key) is None
        with pytest.raises(ObjectMissing, match=key):
            store.read(key)


def test_head_listing_and_find_agree(store: ObjectStore) -> None:
    etag = store.put("a/b", b"four")
    head = store.head("a/b")
    assert head is not None
    assert (head.key, head.size, head.etag) == ("a/b", 4, etag)
    assert list(store.list("a")) == [head]


def test_an_object_knows_when_it_was_written(store: ObjectStore) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)  # S3 gives whole seconds
    store.put("a/b", b"1")
    head, (listed,) = store.head("a/b"), store.list("a")
    assert head is not None
    assert before <= head.modified == listed.modified <= datetime.now(UTC)
    assert head.modified.tzinfo is UTC


def test_put_if_absent_never_overwrites(store: ObjectStore) -> None:
    etag = store.put_if_absent("a/b", b"first")
    with pytest.raises(ObjectChanged, match="a/b"):
        store.put_if_absent("a/b", b"second")
    found = store.find("a/b")
    assert found is not None
    assert (found.body, found.etag) == (b"first", etag)


def test_put_if_unchanged_follows_the_etag(store: ObjectStore) -> None:
    first = store.put("mark", b"1")
    second = store.put_if_unchanged("mark", b"2", first)
    assert store.put_if_unchanged("mark", b"3", second) != second
    assert store.read("mark") == b"3"


def test_put_if_unchanged_refuses_an_outdated_etag(store: ObjectStore) -> None:
    first = store.put("mark", b"1")
    store.put("mark", b"2")
    with pytest.raises(ObjectChanged, match="mark"):
        store.put_if_unchanged("mark", b"3", first)
    assert store.read("mark") == b"2"


def test_put_if_unchanged_refuses_an_object_that_is_gone(store: ObjectStore) -> None:
    etag = store.put("a/mark", b"1")
    store.delete("a/mark")
    with pytest.raises(ObjectChanged, match="a/mark"):
        store.put_if_unchanged("a/mark", b"2", etag)
    assert store.find("a/mark") is None
    assert list(store.list("")) == []


def test_delete_if_unchanged_follows_the_etag(store: ObjectStore) -> None:
    first = store.put("a/mark", b"1")
    second = store.put("a/mark", b"2")
    with pytest.raises(ObjectChanged, match="a/mark"):
        store.delete_if_unchanged("a/mark", first)
    assert store.read("a/mark") == b"2"
    assert store.delete_if_unchanged("a/mark", second) is True
    assert store.find("a/mark") is None
    assert list(store.list("")) == []


def test_delete_if_unchanged_of_what_is_gone_is_no_error(store: ObjectStore) -> None:
    assert store.delete_if_unchanged("never/there", '"etag"') is False
    etag = store.put("mark", b"1")
    store.delete("mark")
    assert store.delete_if_unchanged("mark", etag) is False


def test_of_several_conditional_deletes_of_one_object_one_has_done_it(store: ObjectStore) -> None:
    for number in range(20):
        etag = store.put("mark", b"%d" % number)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: store.delete_if_unchanged("mark", etag), range(4)))  # noqa: B023
        assert sorted(answers) == [False, False, False, True]


def test_a_conditional_delete_never_removes_what_a_conditional_write_put_there(store: ObjectStore) -> None:
    for number in range(20):
        etag = store.put("mark", b"old %d" % number)

        def attempt(change: Callable[[], object]) -> bool:
            try:
                change()
            except ObjectChanged:
                return False
            return True

        changes = [
            lambda: store.put_if_unchanged("mark", b"new", etag),  # noqa: B023
            lambda: store.delete_if_unchanged("mark", etag),  # noqa: B023
        ]
        with ThreadPoolExecutor(2) as pool:
            written, removed = pool.map(attempt, changes)
        found = store.find("mark")
        assert (written, removed, found.body if found else None) in [(True, False, b"new"), (False, True, None)]
        store.delete("mark")


def test_the_listing_is_sorted_by_key_not_by_folder(store: ObjectStore) -> None:
    keys = ["a/x", "a-b", "a.b", "a0", "a/b/c", "a/b-c", "Z", "b"]
    for key in keys:
        store.put(key, b"1")
    assert [info.key for info in store.list("")] == sorted(keys)
    assert [info.key for info in store.list("a")] == ["a/b-c", "a/b/c", "a/x"]


def test_a_prefix_means_whole_parts(store: ObjectStore) -> None:
    for key in ("runs/1/a", "runs/10/a", "runs/1-a"):
        store.put(key, b"1")
    assert [info.key for info in store.list("runs/1")] == ["runs/1/a"]
    assert [info.key for info in store.list("runs/1/")] == ["runs/1/a"]
    assert list(store.list("runs/2")) == []
    assert store.delete_prefix("runs/1") == 1
    assert [info.key for info in store.list("")] == ["runs/1-a", "runs/10/a"]


def test_the_whole_store_is_not_emptied_by_an_empty_prefix(store: ObjectStore) -> None:
    store.put("a", b"1")
    with pytest.raises(UsageError, match="whole store"):
        store.delete_prefix("")
    assert store.read("a") == b"1"


def test_delete_is_idempotent(store: ObjectStore) -> None:
    store.delete("never/there")
    store.put("a", b"1")
    store.put("b/c", b"1")
    store.delete("a", "b/c", "never/there")
    store.delete("a", "b/c")
    store.delete()
    assert list(store.list("")) == []


def test_more_keys_are_deleted_than_one_s3_request_takes(store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.put(f"many/{n:04}", b""), range(1005)))
    assert store.delete_prefix("many") == 1005
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "a//b",
        "a/",
        "..",
        "a/../../b",
        "./a",
        "a/.",
        "a\n",
        "a\0b",
        ".tidemark-lock",
        ".tidemark-tmp/a",
        "a/.tidemark-1.tmp",
    ],
)
def test_a_key_that_could_leave_the_root_is_refused(store: ObjectStore, key: str) -> None:
    calls = [
        lambda: store.read(key),
        lambda: store.find(key),
        lambda: store.head(key),
        lambda: store.put(key, b""),
        lambda: store.put_if_absent(key, b""),
        lambda: store.put_if_unchanged(key, b"", "etag"),
        lambda: store.delete("fine", key),
        lambda: store.delete_if_unchanged(key, "etag"),
    ]
    if key not in ("", "a/"):
        calls += [lambda: store.list(key), lambda: store.delete_prefix(key)]
    for call in calls:
        with pytest.raises(UsageError):
            call()


def test_a_pickled_store_is_the_same_store(store: ObjectStore) -> None:
    store.put("a", b"1")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.root == store.root
    assert copy.read("a") == b"1"


def test_a_uri_is_the_root_and_the_key(store: ObjectStore) -> None:
    assert store.uri("a/b") == f"{store.root}/a/b"


def test_a_reader_sees_the_old_or_the_new_object_never_a_mixture(store: ObjectStore) -> None:
    versions = [bytes([letter]) * 300_000 for letter in b"abcdefgh"]
    store.put("state", versions[0])
    done = threading.Event()
    seen: list[bytes] = []

    def read() -> None:
        while not done.is_set():
            seen.append(store.read("state"))

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for version in versions * 2:
            store.put("state", version)
        done.set()
        for reader in readers:
            reader.result()
    assert seen
    assert set(seen) <= set(versions)


def test_no_increment_is_lost_among_threads(store: ObjectStore) -> None:
    store.put("count", b"0")

    def increment(_: int) -> None:
        while True:
            found = store.find("count")
            assert found is not None
            try:
                store.put_if_unchanged("count", b"%d" % (int(found.body) + 1), found.etag)
            except ObjectChanged:
                continue
            return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, range(24)))
    assert store.read("count") == b"24"
