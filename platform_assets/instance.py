"""The Dagster instance that the command line and the web UI share."""

import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from dagster import DagsterInstance

from tidemark.config import Config
from tidemark.config.dagster_storage import DagsterStorage, dagster_storage
from tidemark.errors import ConfigError, DagsterUnreachable
from tidemark.store.files import make_root

SETTINGS: dict[str, Any] = {
    # The first visit to the web UI shows no dialog, and nothing is reported anywhere.
    "telemetry": {"enabled": False},
    "nux": {"enabled": False},
    # One run at a time of what has a pool: a model, a stream of a single tenant, upkeep. Never a limit on the partition:
    # that is a tenant for streams, and one stream would hold up all others of the tenant.
    "concurrency": {"pools": {"granularity": "run", "default_limit": 1}},
    # A code server that is away for a moment (a restart, a new version) fails no run that waits: it is asked again for five
    # minutes. Limits of the queue stand above: Dagster takes none here next to them.
    "run_queue": {"max_user_code_failure_retries": 10, "user_code_failure_retry_delay": 30},
    # And no schedule misses its time because of it.
    "scheduler": {
        "module": "dagster._core.scheduler",
        "class": "DagsterDaemonScheduler",
        "config": {"max_tick_retries": 3},
    },
    # What schedules and sensors did each time; those that did nothing are most of them.
    "retention": {
        "schedule": {"purge_after_days": 30},
        "sensor": {"purge_after_days": {"skipped": 1, "failure": 30, "success": 30}},
    },
    # Sensors and schedules are evaluated next to each other: a source that is silent until its deadline holds up no other.
    "sensors": {"use_threads": True, "num_workers": 8},
    "schedules": {"use_threads": True, "num_workers": 4},
    # Runs that a schedule or a sensor started ask to be tried again; no others are.
    "run_retries": {"enabled": True, "max_retries": 0},
}

LOCK_SECONDS = 20
VERSION = 1  # of the form below, not of the settings: other settings have another digest
MARK = "# Written by Tidemark (version {version}, digest {digest}).\n"
NOTE = "# Tidemark rewrites this file when its settings change. Edit it, and it is yours: it is then left alone.\n"
_MARK = re.compile(r"# Written by Tidemark \(version (\d+), digest ([0-9a-f]{16})\)\.\n")
UNMARKED = "e13ce97d73a7b063"  # what Tidemark wrote before it marked its files


def dagster_home(config: Config) -> Path:
    """`dagster-home` of the configuration, or DAGSTER_HOME, or a folder next to the state."""
    if config.dagster_home:
        return config.dagster_home
    if os.environ.get("DAGSTER_HOME"):
        return Path(os.environ["DAGSTER_HOME"])
    return _state_folder(config) / "dagster"


def _state_folder(config: Config) -> Path:
    return config.store.folder or config.path.resolve().parent / ".tidemark"


def prepare_home(config: Config) -> Path:
    """Makes the folder and its dagster.yaml; one that is not Tidemark's own is left as it is. Later imports find both."""
    home = dagster_home(config)
    if _state_folder(config) in home.parents:
        # The store's own folder, or what stands for it: whoever makes it first makes it for its owner alone.
        make_root(str(_state_folder(config)))
    make_root(str(home))
    storage = dagster_storage(config.dagster_storage) if config.dagster_storage else None
    if storage:
        _check_environment(storage)
    _write(home / "dagster.yaml", storage)
    os.environ["DAGSTER_HOME"] = str(home)
    # Not its real path: relative paths in it begin where it was found, which may be a link.
    os.environ["TIDEMARK_CONFIG"] = str(config.path)
    return home


def open_instance(config: Config) -> DagsterInstance:
    """The instance. The storage of several hosts may be away, and that has a name."""
    home = prepare_home(config)
    if not config.dagster_storage:
        with _alone(home):
            return DagsterInstance.get()
    from dagster_postgres.utils import DagsterPostgresException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return DagsterInstance.get()
    except (DagsterPostgresException, SQLAlchemyError):
        # `from None`: the driver's error may quote the URL.
        raise DagsterUnreachable(
            f"Dagster's storage {dagster_storage(config.dagster_storage)} cannot be opened. Check `dagster-storage` in "
            f"{config.path}, and that the database is up and lets this user in."
        ) from None


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Dagster creates its SQLite files when it first opens them. Two processes that do so at once both note their version,
    and files with two versions are refused for ever after. A process that ends lets go of the lock; one that was stopped
    inside of it keeps it, and is not waited for: its files are most likely there already."""
    until = time.monotonic() + LOCK_SECONDS
    with (home / ".tidemark-opening").open("w") as lock:
        while time.monotonic() < until:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        yield


def instance_settings(storage: DagsterStorage | None) -> dict[str, Any]:
    """What dagster.yaml says."""
    return SETTINGS if storage is None else {**SETTINGS, "storage": {"postgres": _postgres(storage)}}


def settings_text(storage: DagsterStorage | None = None) -> str:
    """dagster.yaml as Tidemark writes it."""
    body = NOTE + yaml.safe_dump(instance_settings(storage), sort_keys=False)
    return MARK.format(version=VERSION, digest=_digest(body)) + body


def _postgres(storage: DagsterStorage) -> dict[str, Any]:
    secret = {"password": {"env": storage.password_variable}} if storage.password_variable else {}
    options = {"params": storage.options} if storage.options else {}
    place = {"hostname": storage.host, "port": storage.port, "db_name": storage.database, "username": storage.user}
    # Named, since SQLAlchemy may take another driver by default, with which Dagster's NOTIFY fails.
    return {"postgres_db": {"scheme": "postgresql+psycopg2", **place, **secret, **options}}


def _check_environment(storage: DagsterStorage) -> None:
    if find_spec("dagster_postgres") is None:
        raise ConfigError("`dagster-storage` needs a package that is not installed: pip install 'tidemark[postgres]'.")
    if storage.password_variable and not os.environ.get(storage.password_variable):
        raise ConfigError(
            f"the environment variable {storage.password_variable}, which `dagster-storage` names, is not set. Every "
            "process of Dagster needs it: command line, web UI, daemon and code servers."
        )


def _write(file: Path, storage: DagsterStorage | None) -> None:
    wanted = settings_text(storage)
    found = file.read_text() if file.exists() else None
    if found == wanted:
        return
    if found is None or _is_ours(found):
        _replace(file, wanted)
    elif storage and not _has_storage(found):
        raise ConfigError(
            f"`dagster-storage` is set, but {file} is not one that Tidemark wrote, and keeps the instance on this host. "
            f"Remove it, or add to it:\n{yaml.safe_dump({'storage': {'postgres': _postgres(storage)}}, sort_keys=False)}"
        )


def _is_ours(text: str) -> bool:
    """Whether Tidemark wrote it and nobody changed it since. A newer Tidemark's own is left to that one."""
    mark = _MARK.match(text)
    if mark is None:
        return _digest(text) == UNMARKED
    return int(mark[1]) <= VERSION and mark[2] == _digest(text[mark.end() :])


def _has_storage(text: str) -> bool:
    try:
        own = yaml.safe_load(text)
    except yaml.YAMLError:  # Dagster says what is wrong with it
        return True
    return isinstance(own, dict) and bool({"storage", "run_storage"} & own.keys())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _replace(file: Path, text: str) -> None:
    """At once: another process may read it meanwhile."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".dagster-", delete=False) as new:
        new.write(text)
    os.chmod(new.name, 0o644)
    os.replace(new.name, file)
