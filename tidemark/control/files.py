"""Files of the control database that only their owner may use, whatever the umask."""

import os
from contextlib import suppress
from pathlib import Path


def make_folder(folder: Path) -> None:
    """A folder that we make is ours alone; one that exists is left as it is."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    folder.chmod(0o700)


def make_private(path: Path) -> None:
    """Creates the file for its owner only, and tightens one that is wider if it is ours.

    SQLite gives its -wal and -shm files the mode of the database; those that are there already are tightened too.
    """
    try:
        with suppress(FileExistsError):
            # Never opened if it is there: to close it would drop the locks that SQLite holds on it in this process.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            if each.exists() and each.stat().st_uid == os.geteuid() and each.stat().st_mode & 0o077:
                each.chmod(each.stat().st_mode & 0o700)
    except OSError:
        return  # SQLite says what is wrong with the file when it opens it
