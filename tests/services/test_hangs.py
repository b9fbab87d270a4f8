"""A test that hangs is named, wherever it hangs, and the others run all the same."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
OTHER = "def test_other():\n    pass\n"
IN_PYTHON = """
from threading import Event

def test_waits():
    Event().wait()
"""
IN_A_FIXTURE = """
import pytest
from threading import Event

@pytest.fixture(scope="session")
def server():
    Event().wait()

def test_waits(server):
    pass
"""
# Locked twice: unlike a sleep it hears no signal.
IN_A_LIBRARY = """
import ctypes

def test_waits():
    mutex = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
"""
IN_A_CHILD = """
from threading import Event
from tests.services.children import in_child

def wait_in_child():
    Event().wait()

def test_waits():
    in_child(wait_in_child)
"""
CONFTEST = "from tests.services.scheduling import pytest_xdist_make_scheduler\n"
# The first child waits for imports, which is no hang.
WARM = """
import gc
from tests.services.children import in_child

def pytest_collection():
    assert in_child(gc.collect) == 0
"""


def ran(folder: Path, test: str, *options: str) -> str:
    (folder / "test_hanging.py").write_text(test)
    (folder / "conftest.py").write_text(CONFTEST + (WARM if test == IN_A_CHILD else ""))
    (folder / "test_other.py").write_text(OTHER)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    limits = ["-o", "timeout=5", "-o", "faulthandler_timeout=8", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *limits, *options, str(folder)], cwd=folder, capture_output=True, text=True, timeout=90)
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.parametrize("test", [IN_PYTHON, IN_A_FIXTURE, IN_A_CHILD], ids=["python", "fixture", "child"])
def test_a_test_that_hangs_fails_with_its_stack_and_the_next_one_runs(tmp_path: Path, test: str) -> None:
    said = ran(tmp_path, test)
    assert "test_hanging.py::test_waits - Failed: Timeout (>5.0s)" in said
    assert "1 passed" in said
    assert test != IN_A_CHILD or "in wait_in_child" in said


def test_a_test_that_hangs_inside_of_a_library_is_named(tmp_path: Path) -> None:
    assert "in test_waits" in ran(tmp_path, IN_A_LIBRARY)


def test_a_test_that_hangs_inside_of_a_library_ends_one_of_several_processes(tmp_path: Path) -> None:
    said = ran(tmp_path, IN_A_LIBRARY + OTHER, "-n", "2", "--dist", "loadfile")
    assert "crashed while running 'test_hanging.py::test_waits'" in said
    assert "in test_waits" in said
    assert "1 failed, 2 passed" in said


@pytest.mark.fast
def test_no_test_has_more_than_two_minutes() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["timeout"] < settings["faulthandler_timeout"] < 120
    assert not [
        path.name for path in ROOT.glob("tests/**/*.py") if "mark.timeout(" in path.read_text() and path != Path(__file__)
    ]
