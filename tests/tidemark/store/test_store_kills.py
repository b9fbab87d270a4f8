"""A process dies in the middle of a write, or the disk is full."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidemark.store import LocalStore
from tidemark.store.local import LOCK, TEMPORARY

pytestmark = pytest.mark.fault

PUT = "import sys; from tidemark.store import LocalStore; LocalStore(sys.argv[1]).put('a/state', b'new')"


def writer(store: LocalStore, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PUT, store.root], env={**os.environ, **environment})


def temporary_files(store: LocalStore) -> list[Path]:
    return list(Path(store.root).rglob("*.tmp"))


def test_a_killed_write_leaves_the_old_object_and_sweep_removes_the_rest(local: LocalStore) -> None:
    local.put("a/state", b"old")
    assert writer(local, TIDEMARK_FAULT="store.local.before_rename").wait() == -9
    assert len(temporary_files(local)) == 1
    assert local.read("a/state") == b"old"
    assert [info.key for info in local.list("")] == ["a/state"]
    assert local.sweep() == 1
    assert temporary_files(local) == []
    assert local.read("a/state") == b"old"
    assert local.sweep() == 0


def test_nothing_remains_of_a_killed_first_write_after_a_sweep(local: LocalStore) -> None:
    assert writer(local, TIDEMARK_FAULT="store.local.before_rename").wait() == -9
    assert local.find("a/state") is None
    assert local.sweep() == 1
    assert set(os.listdir(local.root)) <= {LOCK, TEMPORARY}
    assert os.listdir(f"{local.root}/{TEMPORARY}") == []


def test_sweep_spares_the_file_of_a_living_writer(local: LocalStore, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    alive = writer(local, TIDEMARK_FAULT="store.local.before_rename:pause", TIDEMARK_FAULT_GATE=str(gate))
    try:
        limit = time.monotonic() + 30
        while not gate.with_suffix(".reached").exists():
            assert time.monotonic() < limit
            time.sleep(0.02)
        assert local.sweep() == 0
        assert len(temporary_files(local)) == 1
        gate.touch()
        assert alive.wait(30) == 0
    finally:
        alive.kill()
        alive.wait()
    assert local.read("a/state") == b"new"


FILL = """
import os, subprocess, sys
from tidemark.errors import StoreFull
from tidemark.store import LocalStore
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", sys.argv[1]], check=True)
store = LocalStore(sys.argv[1])
etag = store.put("a/state", b"old")
for write in (
    lambda: store.put("a/state", bytes(2 << 20)),
    lambda: store.put_if_unchanged("a/state", bytes(2 << 20), etag),
    lambda: store.put_if_absent("new/part", bytes(2 << 20)),
):
    try:
        write()
    except StoreFull as full:
        print(type(full).__name__, full)
print(store.read("a/state"), sorted(os.listdir(store.root)), os.listdir(store.root + "/a"))
store.put("a/state", b"room again")
"""


def own_mounts_are_possible() -> bool:
    return subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True).returncode == 0


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    """A file system of 1 MB that only the child sees: needs no root where user namespaces are allowed."""
    if not own_mounts_are_possible():
        pytest.skip("this machine lets nobody mount a file system of their own")
    child = subprocess.run(
        ["unshare", "--map-root-user", "--mount", sys.executable, "-c", FILL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    *full, left = child.stdout.splitlines()
    assert len(full) == 3
    assert all(line.startswith("StoreFull ") and "no space left" in line for line in full)
    assert left == f"b'old' {[LOCK, TEMPORARY, 'a']} ['state']"


ELSEWHERE = """
import os, subprocess, sys
from tidemark.errors import ObjectChanged
from tidemark.store import LocalStore
store = LocalStore(sys.argv[1])
store.put("here", b"1")
os.mkdir(store.root + "/other")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", store.root + "/other"], check=True)
etag = store.put("other/a/x", b"1")
etag = store.put_if_unchanged("other/a/x", b"2", etag)
store.put_if_absent("other/a/y", b"3")
try:
    store.put_if_absent("other/a/y", b"4")
except ObjectChanged:
    print(store.read("other/a/x"), store.read("other/a/y"), sorted(os.listdir(store.root + "/other/a")))
store.delete_if_unchanged("other/a/x", etag)
store.delete("other/a/y")
print(os.listdir(store.root + "/other"))
"""


def test_a_folder_of_the_store_may_lie_on_another_file_system(tmp_path: Path) -> None:
    """No rename leads from one file system to another."""
    if not own_mounts_are_possible():
        pytest.skip("this machine lets nobody mount a file system of their own")
    child = subprocess.run(
        ["unshare", "--map-root-user", "--mount", sys.executable, "-c", ELSEWHERE, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.splitlines() == ["b'2' b'3' ['x', 'y']", "[]"]


TOO_LARGE = """
import resource, sys
from tidemark.errors import StoreError
from tidemark.store import LocalStore
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    LocalStore(sys.argv[1]).put("a/state", bytes(1 << 20))
except StoreError as error:
    print(error)
"""


def test_a_write_that_breaks_off_leaves_the_old_object(local: LocalStore) -> None:
    """The kernel refuses to let this child's files grow beyond 64 kB: a write error in the middle, without root."""
    local.put("a/state", b"old")
    child = subprocess.run(
        [sys.executable, "-c", TOO_LARGE, local.root],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "could not write" in child.stdout
    assert local.read("a/state") == b"old"
    assert temporary_files(local) == []
