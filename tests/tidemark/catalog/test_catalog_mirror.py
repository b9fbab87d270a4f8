"""The mirror follows the lake: what is rewritten, what is left alone, and what it asks before it changes anything."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tidemark.catalog.mirror_world import World
from tidemark.catalog.manifest import find_manifest
from tidemark.errors import LeaseLost, LostRace
from tidemark.store import LocalStore

pytestmark = pytest.mark.fast

NOTHING = np.array([], np.int64)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mirror") / "lake"
    World(LocalStore(str(folder)), str(folder)).make_lake()
    return str(folder)


@pytest.fixture(params=["own etags", "etags of the content"])
def world(request: pytest.FixtureRequest, lake: str, tmp_path: Path) -> World:
    store = LocalStore(str(tmp_path / "store"))
    store.etags_repeat = request.param == "etags of the content"
    return World(store, lake, workers=3)


def test_the_mirror_shows_every_state_with_the_labels_of_its_run(world: World) -> None:
    for run_id, increment in [("run_1", False), ("run_2", True), ("run_3", True), ("run_2", False), ("run_1", False)]:
        world.bring_to(run_id, increment=increment)
        assert world.shown() == world.expected(run_id)
        assert world.faults() == []


def test_labels_are_settled_by_the_next_run_and_the_rest_is_left_alone(world: World) -> None:
    world.bring_to("run_1")
    settled = world.settle()
    assert world.shown() == world.expected("unchanged")
    before = world.objects()
    world.bring_to("run_2", increment=True)
    after = world.objects()
    left_alone = [path for path in before if after.get(path) == before[path]]
    assert left_alone
    assert {file.path for file in settled.files} - set(left_alone)
    assert world.faults() == []


def test_a_rewrite_of_the_same_state_is_another_version_of_every_file(world: World) -> None:
    """Else a write that waited since before a rollback would find the object unchanged."""
    world.bring_to("run_1")
    before = world.objects()
    world.bring_to("run_2")
    world.bring_to("run_1")
    after = world.objects()
    assert before.keys() == after.keys()
    assert all(before[path][0] != after[path][0] for path in before)
    if world.store.etags_repeat:
        digests = [hashlib.md5(body).hexdigest() for objects in (before, after) for _, body in objects.values()]
        assert len(set(digests)) == len(digests)


def test_a_run_that_lost_its_lease_before_the_first_change_changes_nothing(world: World) -> None:
    world.settle()
    before = world.objects()
    with pytest.raises(LeaseLost):
        world.mirror.bring_to(world.layout.table, world.snapshot("run_2"), "run_2", None, confirm=lost_after(0))
    assert world.objects() == before


def test_a_run_that_loses_its_lease_stops_before_the_next_file_and_takes_back_what_it_created(world: World) -> None:
    mirror, table, snapshot = world.mirror, world.layout.table, world.snapshot("run_2")
    world.start_again()
    existed = world.objects().keys()
    confirmed: list[int] = []
    mirror.bring_to(table, snapshot, "run_2", None, confirm=lambda: confirmed.append(1))
    files = len(world.objects()) - 1
    assert len(confirmed) == files + 2  # before the first change, before each file, and before the manifest
    for allowed in (1, 2, files // 2, files, files + 1):
        world.start_again()
        with pytest.raises(LeaseLost):
            mirror.bring_to(table, snapshot, "run_2", None, confirm=lost_after(allowed))
        assert world.objects().keys() == existed - {"_manifest.json"}
    world.bring_to("run_2")
    assert world.shown() == world.expected("run_2")


def lost_after(allowed: int) -> Callable[[], None]:
    calls: list[int] = []

    def confirm() -> None:
        calls.append(1)
        if len(calls) > allowed:
            raise LeaseLost("the lease was taken over")

    return confirm


def test_a_manifest_that_is_gone_when_it_should_be_removed_means_another_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    store, manifest = world.store, world.layout.manifest
    remove = store.delete_if_unchanged

    def lost(key: str, etag: str) -> bool:
        """Done, and not heard of."""
        return remove(key, etag) and key != manifest

    monkeypatch.setattr(store, "delete_if_unchanged", lost)
    before = world.objects()
    with pytest.raises(LostRace, match="another run has taken over this mirror"):
        world.bring_to("run_2", increment=True)
    del before["_manifest.json"]
    assert world.objects() == before

    monkeypatch.undo()
    world.start_again()
    monkeypatch.setattr(store, "delete_if_unchanged", lost)
    # While the lease is ours nobody else can have removed it.
    world.mirror.bring_to(world.layout.table, world.snapshot("run_2"), "run_2", None, confirm=lambda: None)
    assert world.shown() == world.expected("run_2")


def test_a_damaged_manifest_is_replaced(world: World) -> None:
    world.settle()
    world.store.put(world.layout.manifest, b"half a mani")
    world.bring_to("run_2", increment=True)
    assert world.shown() == world.expected("run_2")
    assert world.faults() == []


def test_what_is_no_longer_wanted_or_was_never_ours_is_removed(world: World) -> None:
    world.bring_to("run_2")
    world.store.put(f"{world.layout.current_state}/column/column_99.json", b"stray\n")
    world.bring_to("run_3", increment=True)
    assert world.shown() == world.expected("run_3")
    assert world.faults() == []


def test_the_manifest_follows_to_a_compacted_snapshot(world: World) -> None:
    shown = world.settle()
    moved = world.mirror.follow(shown.snapshot_id, 4711)
    assert moved == shown.model_copy(update={"snapshot_id": 4711})
    assert find_manifest(world.store, world.layout).manifest == moved
    assert world.faults() == []
    assert world.mirror.follow(shown.snapshot_id, 4712) is None
    assert find_manifest(world.store, world.layout).manifest == moved


def test_a_mirror_that_another_run_took_over_is_not_followed(world: World) -> None:
    shown = world.settle()
    with pytest.raises(LostRace, match="another run has taken over this mirror"):
        world.mirror.follow(shown.snapshot_id, 4711, confirm=lambda: world.bring_to("run_2"))
    assert world.shown() == world.expected("run_2")
    assert world.faults() == []
    with pytest.raises(LeaseLost):
        world.mirror.follow(world.snapshot("run_2"), 4711, confirm=lost_after(0))


@pytest.mark.parametrize("manifest", ["there", "missing"])
def test_a_newer_run_between_the_two_looks_at_the_start_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    """A manifest that is newer than the listing must not be taken for the one that belongs to the listed files."""
    world.settle()
    if manifest == "missing":
        world.store.delete(world.layout.manifest)
    store, looks = world.store, {"find": world.store.find, "list": world.store.list}
    newer: list[object] = []

    def looked(name: str) -> Callable[[str], object]:
        def look(key: str) -> object:
            answer = looks[name](key)
            answer = list(answer) if name == "list" else answer
            if not newer:
                monkeypatch.undo()
                world.bring_to("run_3")
                newer.append(world.objects())
            return answer

        return look

    for name in looks:
        monkeypatch.setattr(store, name, looked(name))
    with pytest.raises(LostRace):
        world.bring_to("run_2", increment=True)
    assert newer == [world.objects()]
