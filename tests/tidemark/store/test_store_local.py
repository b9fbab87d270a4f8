"""What only a folder has: files, locks, and nothing left lying about."""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.services.children import in_child
from tidemark.errors import ObjectChanged, StoreError
from tidemark.faults import InjectedFault
from tidemark.store import LocalStore
from tidemark.store.files import PROBE_GRACE_SECONDS
from tidemark.store.local import LOCK, TEMPORARY

pytestmark = pytest.mark.fast


def everything_in(store: LocalStore) -> set[str]:
    """Every file and folder below the root, hidden ones too; the lock and the folder of temporary files aside."""
    root = Path(store.root)
    return {str(path.relative_to(root)) for path in root.rglob("*")} - {LOCK, TEMPORARY}


def test_nothing_but_the_object_remains_of_a_write(local: LocalStore) -> None:
    etag = local.put("a/b", b"1")
    local.put_if_unchanged("a/b", b"2", etag)
    local.put_if_absent("a/c", b"1")
    assert everything_in(local) == {"a", "a/b", "a/c"}


def test_nothing_remains_of_a_refused_write(local: LocalStore) -> None:
    local.put_if_absent("a/b", b"1")
    with pytest.raises(ObjectChanged):
        local.put_if_absent("a/b", b"2")
    with pytest.raises(ObjectChanged):
        local.put_if_unchanged("new/folder/x", b"2", "etag")
    assert everything_in(local) == {"a", "a/b"}


def test_nothing_remains_of_a_failed_write(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    local.put("a", b"old")
    monkeypatch.setenv("TIDEMARK_FAULT", "store.local.before_rename:raise")
    with pytest.raises(InjectedFault):
        local.put("a", b"new")
    with pytest.raises(InjectedFault):
        local.put("new/folder/x", b"new")
    assert everything_in(local) == {"a"}
    assert local.read("a") == b"old"


def test_nothing_remains_of_a_probe(local: LocalStore) -> None:
    local.probe()
    assert everything_in(local) == set()


def test_reading_makes_no_folder(local: LocalStore) -> None:
    assert local.find("a") is None
    assert list(local.list("")) == []
    local.delete("a")
    assert local.sweep() == 0
    assert not os.path.exists(local.root)


def test_folders_that_became_empty_are_removed_but_not_the_root(local: LocalStore) -> None:
    local.put("a/b/c/d", b"1")
    local.put("a/x", b"1")
    local.delete("a/b/c/d")
    assert everything_in(local) == {"a", "a/x"}
    local.delete("a/x")
    assert everything_in(local) == set()
    assert os.path.isdir(local.root)


def test_the_content_is_durable_before_the_name_and_the_name_before_the_answer(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = local.put("a/b", b"1")
    steps: list[str] = []
    sync, rename, link = os.fsync, os.replace, os.link

    def noted_sync(handle: int) -> None:
        steps.append("sync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "sync content")
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", lambda *names: (steps.append("name"), rename(*names)))
    monkeypatch.setattr(os, "link", lambda *names: (steps.append("name"), link(*names)))
    local.put_if_unchanged("a/b", b"2", etag)
    local.put("a/b", b"3")
    local.put_if_absent("a/c", b"1")
    assert steps == ["sync content", "name", "sync folder"] * 3

    steps.clear()
    local.delete("a/b", "a/c")
    assert steps == ["sync folder"]

    steps.clear()
    local.put("new/folder/x", b"1")
    # Two new folders are two new names, each in the folder above.
    assert steps == ["sync content", "sync folder", "sync folder", "name", "sync folder"]

    steps.clear()
    head = local.head("new/folder/x")
    assert head is not None
    local.delete_if_unchanged("new/folder/x", head.etag)
    assert steps == ["sync folder"]


def test_temporary_files_and_the_lock_are_not_listed(local: LocalStore) -> None:
    local.put("a/b", b"1")
    Path(local.root, "a", ".tidemark-1-x.tmp").write_bytes(b"half")
    assert os.path.exists(f"{local.root}/{LOCK}")
    assert [info.key for info in local.list("")] == ["a/b"]


def test_the_etag_changes_with_every_rewrite_of_the_same_content(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without waiting for the disk many rewrites fall into one tick of the kernel's clock, and inodes come round again.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    etags = [local.put("mark", b"same") for _ in range(500)]
    assert len(set(etags)) == 500


def test_the_time_in_the_etag_is_not_left_to_the_kernels_coarse_clock(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    etag = local.put("mark", b"1")
    assert etag.split("-")[0] == f"{1_700_000_000_123_456_789:x}"


def test_a_plain_put_waits_for_a_put_if_unchanged_in_progress(local: LocalStore) -> None:
    local.put("mark", b"old")
    with open(f"{local.root}/{LOCK}", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writer = threading.Thread(target=local.put, args=("mark", b"new"))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert local.read("mark") == b"old"
    writer.join()
    assert local.read("mark") == b"new"


def test_a_process_that_was_stopped_inside_of_the_lock_is_not_waited_for_for_ever(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = local.put("mark", b"old")
    monkeypatch.setattr("tidemark.store.local.LOCK_SECONDS", 0.05)
    with open(f"{local.root}/{LOCK}", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for change in (
            lambda: local.put("mark", b"new"),
            lambda: local.put_if_unchanged("mark", b"new", etag),
            lambda: local.delete("mark"),
            lambda: local.delete_if_unchanged("mark", etag),
        ):
            with pytest.raises(StoreError, match="another process has held the store's lock"):
                change()
        assert local.read("mark") == b"old"
    assert everything_in(local) == {"mark"}


def test_a_delete_waits_for_a_put_if_unchanged_in_progress(local: LocalStore) -> None:
    local.put("mark", b"old")
    with open(f"{local.root}/{LOCK}", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writer = threading.Thread(target=local.delete, args=("mark",))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert local.read("mark") == b"old"
    writer.join()
    assert local.find("mark") is None


def test_a_conditional_delete_waits_for_a_put_if_unchanged_in_progress(local: LocalStore) -> None:
    etag = local.put("mark", b"old")
    with open(f"{local.root}/{LOCK}", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        writer = threading.Thread(target=local.delete_if_unchanged, args=("mark", etag))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert local.read("mark") == b"old"
    writer.join()
    assert local.find("mark") is None


def test_a_forked_child_does_not_keep_the_lock(local: LocalStore) -> None:
    """A child forked while a lock was held has the same open file; it must not hold the lock until it ends."""
    assert in_child(_write_while_a_fork_lives, local.root) == 0


def _write_while_a_fork_lives(root: str) -> None:
    local = LocalStore(root)
    etag = local.put("mark", b"1")
    gate_read, gate_write = os.pipe()
    with local._locked(fcntl.LOCK_EX):
        child = os.fork()
        if child == 0:
            os.close(gate_write)
            os.read(gate_read, 1)
            os._exit(0)
    os.close(gate_read)
    try:
        writer = threading.Thread(target=local.put_if_unchanged, args=("mark", b"2", etag), daemon=True)
        writer.start()
        writer.join(5)
        assert not writer.is_alive()
    finally:
        os.close(gate_write)
        os.waitpid(child, 0)


def test_writes_and_deletes_of_the_same_folder_do_not_disturb_each_other(local: LocalStore) -> None:
    failures: list[BaseException] = []

    def come_and_go(name: str) -> None:
        try:
            for _ in range(100):
                local.put(f"deep/er/{name}", b"1")
                local.delete(f"deep/er/{name}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=come_and_go, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert everything_in(local) == set()


def test_sweep_removes_an_old_probe_and_spares_a_young_one(local: LocalStore) -> None:
    local.put("a", b"1")
    old, young = Path(local.root, ".tidemark-probe-old"), Path(local.root, ".tidemark-probe-young")
    for probe in (old, young):
        probe.write_bytes(b"1")
    long_ago = young.stat().st_mtime - PROBE_GRACE_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    assert local.sweep() == 1
    assert everything_in(local) == {"a", young.name}


def test_the_sweep_before_a_run_reads_no_folder_of_objects(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        local.put(f"lake/table/data/part_{number}/file", b"1")
    looked_at: set[str] = set()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (looked_at.add(str(path)), scandir(path))[1])
    local.sweep()
    assert looked_at == {local.root, f"{local.root}/{TEMPORARY}"}


def test_what_an_older_version_left_next_to_objects_goes_in_upkeep(local: LocalStore) -> None:
    local.put("a/b", b"1")
    left = [Path(local.root, "a", ".tidemark-1-x.tmp"), Path(local.root, "alone", "deep", ".tidemark-1-y.tmp")]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    assert local.sweep() == 0
    assert all(path.exists() for path in left)
    assert local.sweep(everywhere=True) == 2
    assert everything_in(local) == {"a", "a/b"}


def test_a_sweep_for_old_files_spares_young_ones(local: LocalStore) -> None:
    old, young = Path(local.root, "a", ".tidemark-1-x.tmp"), Path(local.root, "a", ".tidemark-1-y.tmp")
    old.parent.mkdir(parents=True)
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert local.sweep(everywhere=True, older_than=timedelta(hours=1)) == 1
    assert young.exists()


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_new_store_is_for_its_owner_alone_and_below_the_umask_decides(local: LocalStore, open_umask: None) -> None:
    local.put("current-state/table_0.json", b"1")
    local.put_if_absent("current-state/table_1.json", b"1")
    assert mode_of(local.root) == 0o700
    assert mode_of(f"{local.root}/current-state") == 0o777
    assert (
        mode_of(f"{local.root}/current-state/table_0.json") == mode_of(f"{local.root}/current-state/table_1.json") == 0o666
    )


def test_a_folder_that_was_there_keeps_its_mode(local: LocalStore, open_umask: None) -> None:
    os.mkdir(local.root, 0o755)
    local.put("a", b"1")
    assert mode_of(local.root) == 0o755


def test_an_object_cannot_be_a_folder_as_well(local: LocalStore) -> None:
    local.put("a/b", b"1")
    for write in (local.put, local.put_if_absent):
        with pytest.raises(StoreError, match="an object and a folder at once"):
            write("a", b"1")
        with pytest.raises(StoreError, match="an object and a folder at once"):
            write("a/b/c", b"1")
    assert everything_in(local) == {"a", "a/b"}


def test_a_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(StoreError, match="file"):
        LocalStore(str(tmp_path / "file")).probe()


def test_a_dangling_link_in_the_way_is_an_error_and_no_endless_loop(local: LocalStore, tmp_path: Path) -> None:
    local.put("a", b"1")
    os.symlink(tmp_path / "nowhere", f"{local.root}/link")
    with pytest.raises(StoreError, match="link"):
        local.put("link/x", b"1")


KEYS = st.lists(st.sampled_from(["a", "b", "a-b", "a.b", "0"]), min_size=3, max_size=3).map("/".join)


@settings(max_examples=30, deadline=None)
@given(writes=st.lists(KEYS, max_size=10), data=st.data())
def test_the_folder_holds_exactly_what_was_put_and_not_deleted(
    tmp_path_factory: pytest.TempPathFactory, writes: list[str], data: st.DataObject
) -> None:
    store = LocalStore(str(tmp_path_factory.mktemp("store")))
    for key in writes:
        store.put(key, key.encode())
    gone = data.draw(st.lists(KEYS, max_size=6) if not writes else st.lists(st.sampled_from(writes), max_size=6))
    store.delete(*gone)
    kept = sorted(set(writes) - set(gone))
    assert [info.key for info in store.list("")] == kept
    assert everything_in(store) == {key[:end] for key in kept for end in (len(key), key.rfind("/"), key.find("/"))}
