"""What has no place in a manifest: state, which the platform keeps, and secrets, which the environment keeps."""

import re
from typing import Any

from tidemark.config.document import Document
from tidemark.config.problems import Place

STATE = {"cursorvalue", "lastcursor", "lastvalue", "state", "checkpoint", "watermark", "lastrun"}
SECRETS = {"password", "passwd", "pwd", "passphrase", "secret", "token", "apikey", "privatekey", "accesskey", "secretkey"}

STATE_WORDS = "a manifest never holds state. The platform keeps it; the value that a first run begins at is `baseline`."
SECRET_WORDS = "a manifest never holds a secret. Write `{field}: ${{NAME}}` under `credentials`, and set the variable."
LOGIN_WORDS = "holds a password. Put the whole value into the environment: ${NAME}."

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LOGIN = re.compile(r"://[^/\s?#]*:[^/\s?#]+@")


def report_state_and_secrets(document: Document) -> None:
    """Reports every key and every address that gives away state or a secret; never the value."""
    _look(document, document.data, ())


def _look(document: Document, value: Any, place: Place) -> None:
    if isinstance(value, list):
        for position, item in enumerate(value):
            _look(document, item, (*place, position))
    if isinstance(value, dict):
        for key, item in value.items():
            _look_at(document, key, item, (*place, key))
    if isinstance(value, str) and _LOGIN.search(value):
        document.report(place, LOGIN_WORDS)


def _look_at(document: Document, key: str, value: Any, place: Place) -> None:
    if _names_fields_of_records(place[:-1]):
        return  # a record may well have a field `state` or `token`
    if _means(key, STATE):
        document.report(place, STATE_WORDS)
    elif place[0] != "credentials" and _means(key, SECRETS):
        document.report(place, SECRET_WORDS.format(field=key))
    else:
        _look(document, value, place)


def _names_fields_of_records(place: Place) -> bool:
    return len(place) == 3 and place[0] == "streams" and place[2] == "schema"


def _means(key: str, words: set[str]) -> bool:
    """Whether the key ends in one of the words: `client_secret`, `clientSecret` and `API-Key` do, `token_url` does not."""
    parts = [part.lower() for part in _PARTS.findall(key)]
    return any("".join(parts[start:]) in words for start in range(len(parts)))
