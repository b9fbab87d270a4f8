"""Reads tidemark.yaml: one file in, a valid configuration or all that is wrong with it out."""

import os
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidemark.config.connection import Origin
from tidemark.config.document import Document, read_document
from tidemark.config.environment import with_environment
from tidemark.config.explanation import problems_of
from tidemark.config.model import Config
from tidemark.config.problems import Place, as_error, shown

DEFAULT = "tidemark.yaml"
VARIABLE = "TIDEMARK_CONFIG"
LEAST = "The least it needs is one line: `store: .tidemark`."
ELSEWHERE = f"Name another file with --config FILE or the environment variable {VARIABLE}."


def load_config(path: Path | None = None) -> Config:
    """The configuration in the file, in the one that TIDEMARK_CONFIG names, or in ./tidemark.yaml."""
    chosen = Path(path or os.environ.get(VARIABLE) or DEFAULT)
    document = read_document(chosen, str(chosen), least=LEAST, elsewhere=ELSEWHERE)
    file = chosen.absolute()
    given = _with_origins(with_environment(document, _asked_for_later), document, file.parent)
    _report_shared_subjects(given, document)
    config = None
    try:
        config = Config.model_validate(
            {**given, "(path)": file}, by_alias=True, by_name=False, context={"folder": file.parent}
        )
    except ValidationError as error:
        document.problems += problems_of(error, document, Config)
    if config is None or document.problems:
        raise as_error(document.file, document.problems)
    return config


def _asked_for_later(place: Place) -> bool:
    # A run of one connection must not need the passwords of all the others.
    return len(place) == 3 and place[0] == "connections" and place[2] == "url"


def _with_origins(given: dict[str, Any], document: Document, folder: Path) -> dict[str, Any]:
    """Tells each connection its name, and where its URL is written."""
    connections = given.get("connections")
    if not isinstance(connections, dict):
        return given
    named = {}
    for name, settings in connections.items():
        place = ("connections", name, "url")
        origin = Origin(folder, f"{document.file}:{document.line(place)}: {shown(place)}")
        extra = {"(name)": name, "(origin)": origin}
        named[name] = {**settings, **extra} if isinstance(settings, dict) else settings
    return {**given, "connections": named}


def _report_shared_subjects(given: dict[str, Any], document: Document) -> None:
    """Two connections of one app and id would overwrite each other's state."""
    connections = given.get("connections")
    first: dict[str, str] = {}
    for name, settings in connections.items() if isinstance(connections, dict) else ():
        if not isinstance(settings, dict) or not {"app", "id"} <= settings.keys():
            continue
        # As in the lake's table names, which know neither case nor punctuation.
        subject = re.sub(r"[^a-z0-9]", "_", f"{settings['app']}/{settings['id']}".lower())
        if subject in first:
            words = f"has the same app and id as '{first[subject]}' (case and punctuation aside). Give it an id of its own."
            document.report(("connections", name, "id"), words)
        first.setdefault(subject, name)
