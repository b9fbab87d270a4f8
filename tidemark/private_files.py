"""Files that only their owner may use: they hold progress, keys, and what sources look like."""

import os
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tidemark.config import Config
from tidemark.control.state_keys import KEYS_FILE, MADE_FILE

OTHERS = 0o077  # the rights of everybody but the owner


@dataclass(frozen=True)
class Exposed:
    """A file or folder that others may use."""

    path: Path
    mode: int

    @property
    def remedy(self) -> str:
        return f"chmod {'700' if self.path.is_dir() else '600'} {self.path}"


def private_paths(config: Config, dagster_home: Path) -> list[Path]:
    """Databases with their journals, the keys of state, and Dagster's home."""
    paths = [dagster_home]
    url = sa.make_url(config.control)
    if url.get_backend_name() == "sqlite":
        control = Path(str(url.database))
        for database in (control, control.with_name("lake.db")):
            paths += [database.with_name(database.name + ending) for ending in ("", "-wal", "-shm", "-journal")]
        paths.append(control.with_name(MADE_FILE))
    if os.environ.get(KEYS_FILE):
        paths.append(Path(os.environ[KEYS_FILE]))
    return paths


def exposed(paths: list[Path]) -> list[Exposed]:
    """Those of them that exist and that others than their owner may read or change."""
    found = [(path, path.stat().st_mode) for path in paths if path.exists()]
    return [Exposed(path, mode & 0o777) for path, mode in found if mode & OTHERS]
