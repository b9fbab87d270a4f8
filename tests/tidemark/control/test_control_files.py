"""The files of a SQLite control database are for their owner only."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.control import ControlDatabase

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True, params=[0o022, 0o000, 0o077], ids=["022", "000", "077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in sorted(folder.iterdir())}


def test_a_new_database_and_its_journal_are_for_their_owner_only(tmp_path):
    control = ControlDatabase(f"sqlite:///{tmp_path}/made/below/control.db")
    control.runs.begin("catalog/shop", "r1")

    assert modes(tmp_path / "made/below") == {"control.db": 0o600, "control.db-shm": 0o600, "control.db-wal": 0o600}
    assert stat.S_IMODE((tmp_path / "made/below").stat().st_mode) == 0o700
    control.close()


def test_a_folder_that_is_made_for_the_keys_is_for_its_owner_only(tmp_path, monkeypatch):
    monkeypatch.delenv("TIDEMARK_STATE_KEYS", raising=False)
    monkeypatch.delenv("TIDEMARK_STATE_KEYS_FILE", raising=False)
    ControlDatabase(f"sqlite:///{tmp_path}/made/control.db").sealed_marks("t1")
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    assert modes(tmp_path / "made") == {"state.key": 0o600}


def test_a_folder_that_exists_is_left_as_it_is(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    control = ControlDatabase(f"sqlite:///{tmp_path}/shared/control.db")
    control.migrate()
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755
    control.close()


def test_a_database_that_is_wider_is_tightened_with_its_journal(tmp_path):
    path = tmp_path / "control.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("CREATE TABLE x (y int)")
    for each in tmp_path.iterdir():
        each.chmod(0o664)

    control = ControlDatabase(f"sqlite:///{path}")
    control.runs.begin("catalog/shop", "r1")

    assert modes(tmp_path) == {"control.db": 0o600, "control.db-shm": 0o600, "control.db-wal": 0o600}
    other.close()
    control.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_database_of_another_user_is_left_as_it_is(tmp_path):
    path = tmp_path / "control.db"
    path.touch()
    os.chown(path, 12345, -1)
    path.chmod(0o664)
    control = ControlDatabase(f"sqlite:///{path}")
    control.migrate()
    assert modes(tmp_path)["control.db"] == 0o664
    control.close()
