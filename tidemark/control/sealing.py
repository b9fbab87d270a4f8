"""Sealing: a value of state reaches the database only in a form that opens with its key and in its own place."""

import binascii
import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tidemark.address import STREAM
from tidemark.errors import ConfigError, StateKeyMissing, StateSealBroken

FORM = "v1"  # of the sealed text: form, key id, base64 of nonce and ciphertext
KEY_BYTES = 32
NONCE_BYTES = 12

_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Place:
    """Where a sealed value belongs: address and version. Moved to another row, tenant or version it does not open."""

    subject: str
    version: int

    def __str__(self) -> str:
        return f"{self.subject} version {self.version}"

    @property
    def bound_to(self) -> list[str | int]:
        """What a value is sealed together with.

        For `stream/…` the three parts without the system: so it was before subjects had addresses, and values that were
        sealed then must still open.
        """
        system, _, name = self.subject.partition("/")
        return [*name.split("/"), self.version] if system == STREAM else [self.subject, self.version]


class Keyring:
    """Keys by id, newest first: the newest seals, every one opens. It never shows a key and stays in its process."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys:
            raise StateKeyMissing("there is no key to seal state with: a keyring needs at least one.")
        if any(not _KEY_ID.fullmatch(key_id) or len(key) != KEY_BYTES for key_id, key in keys.items()):
            # Nothing of it is quoted: what was meant as an id may be a key.
            raise ConfigError(f"a key of state has an id of up to 64 letters, digits, '.', '_', '-', and {KEY_BYTES} bytes.")
        self.ids = tuple(keys)
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}

    @classmethod
    def temporary(cls) -> "Keyring":
        """A key that nobody keeps, for those who seal nothing."""
        return cls({"temporary": os.urandom(KEY_BYTES)})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.ids)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a keyring cannot be pickled: its keys would leave the process in plain text")

    @property
    def newest_prefix(self) -> str:
        """How every text begins that the newest key sealed."""
        return f"{FORM}:{self.ids[0]}:"

    def seal(self, value: str, place: Place) -> str:
        """The value as text that `open` turns back, with the same key and for the same place only."""
        nonce = os.urandom(NONCE_BYTES)
        key_id = self.ids[0]
        # `surrogatepass`: a cursor may be the name of a file, and not every such name is valid Unicode.
        plain = value.encode(errors="surrogatepass")
        hidden = self._ciphers[key_id].encrypt(nonce, plain, _bound_to(key_id, place))
        return self.newest_prefix + b64encode(nonce + hidden).decode()

    def open(self, sealed: str, place: Place) -> str:
        """The value that was sealed; `StateKeyMissing` or `StateSealBroken` if it does not open."""
        key_id, body = _parts(sealed, place)
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise StateKeyMissing(
                f"{place}: its state was sealed with key '{key_id}', and the keys at hand are: {', '.join(self.ids)}. "
                f"Add that key behind the newest in TIDEMARK_STATE_KEYS, or in the file the keys are read from."
            )
        try:
            plain = cipher.decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], _bound_to(key_id, place))
        except InvalidTag:
            raise _broken(place) from None
        return plain.decode(errors="surrogatepass")


def _bound_to(key_id: str, place: Place) -> bytes:
    # A JSON list, so that no two places read the same, whatever their ids are.
    return json.dumps([FORM, key_id, *place.bound_to]).encode()


def _parts(sealed: str, place: Place) -> tuple[str, bytes]:
    form, _, rest = sealed.partition(":")
    key_id, _, text = rest.partition(":")
    try:
        body = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _broken(place) from None
    # Several texts decode to the same bytes; only the one that was written is taken for unaltered.
    unaltered = b64encode(body).decode() == text and len(body) > NONCE_BYTES
    if form != FORM or not _KEY_ID.fullmatch(key_id) or not unaltered:
        raise _broken(place)
    return key_id, body


def _broken(place: Place) -> StateSealBroken:
    return StateSealBroken(
        f"{place}: its sealed state does not open. The value was altered or copied from another place, or its key id now "
        "names another key. Check the keys; if they are right, restore the control database, or rewind the stream to "
        "a version that opens, or reset it."
    )
