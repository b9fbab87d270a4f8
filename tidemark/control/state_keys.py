"""Where the keys of state come from: the environment, a file, or a key made next to the SQLite database."""

import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path

from tidemark.control.files import make_folder
from tidemark.control.sealing import KEY_BYTES, Keyring
from tidemark.errors import ConfigError, StateKeyMissing

KEYS = "TIDEMARK_STATE_KEYS"
KEYS_FILE = "TIDEMARK_STATE_KEYS_FILE"
MADE_FILE = "state.key"

HOW_TO_SET = (
    f"Set {KEYS} to 'id:key' (more behind a comma, newest first; `openssl rand -base64 32` makes a key), "
    f"or {KEYS_FILE} to a file with one such line a key."
)


def read_keyring(sqlite_folder: Path | None) -> Keyring:
    """The keys that are set; without any, those of the file next to the SQLite database, which is made if need be."""
    listed, named_file = os.environ.get(KEYS, "").strip(), os.environ.get(KEYS_FILE, "").strip()
    if listed and named_file:
        raise ConfigError(f"{KEYS} and {KEYS_FILE} are both set: unset one, so that it is certain which key seals.")
    if listed:
        return _keyring(listed.split(","), KEYS)
    if named_file:
        return _keyring_of_file(Path(named_file))
    if sqlite_folder is None:
        raise StateKeyMissing(f"there is no key to seal state with, and on PostgreSQL none is made by itself. {HOW_TO_SET}")
    return _keyring_of_file(_made_file(sqlite_folder))


def _keyring_of_file(path: Path) -> Keyring:
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StateKeyMissing(f"the keys of state in {path} cannot be read ({why}). {HOW_TO_SET}") from None
    if mode & 0o077:
        raise ConfigError(f"{path}: others than its owner may use this file of keys. Run `chmod 600` on it.")
    return _keyring(lines, str(path))


def _keyring(entries: Iterable[str], source: str) -> Keyring:
    keys: dict[str, bytes] = {}
    for number, entry in enumerate((entry.strip() for entry in entries if entry.strip()), start=1):
        key_id, _, text = entry.partition(":")
        try:
            key = b64decode(text, validate=True)
            Keyring({key_id: key})
        except (ValueError, ConfigError):
            # The entry is not quoted: half of it, and perhaps all of it, is a key.
            raise ConfigError(f"{source}: entry {number} is not 'id:' and the base64 of {KEY_BYTES} bytes.") from None
        if key_id in keys:
            raise ConfigError(f"{source}: entry {number} has the id of an earlier one. Every key needs an id of its own.")
        keys[key_id] = key
    if not keys:
        raise StateKeyMissing(f"{source} holds no key of state. {HOW_TO_SET}")
    return Keyring(keys)


def _made_file(folder: Path) -> Path:
    """The key file of a SQLite database: whole from its first moment on, and never written twice."""
    path = folder / MADE_FILE
    temporary = folder / f".{MADE_FILE}-{secrets.token_hex(8)}"
    # The id is random: the file of another database is then known by name, not by values that do not open.
    line = f"{secrets.token_hex(4)}:{b64encode(secrets.token_bytes(KEY_BYTES)).decode()}\n"
    try:
        if path.exists():
            return path
        make_folder(folder)
        try:
            _write_durably(temporary, line)
            os.link(temporary, path)  # fails where a rename would replace: two that start at once end with one key
        except FileExistsError:
            return path
        finally:
            temporary.unlink(missing_ok=True)
        _sync(folder)
    except OSError as error:
        raise StateKeyMissing(f"the key of state {path} cannot be made ({error.strerror}). {HOW_TO_SET}") from None
    return path


def _write_durably(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
