"""Reads tidemark.yaml: one file in, a valid configuration or all that is wrong with it out."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidemark.config.document import Document, read_document
from tidemark.config.environment import with_environment
from tidemark.config.explanation import problems_of
from tidemark.config.model import Config
from tidemark.config.origin import Origin
from tidemark.config.problems import Place, Problem, as_findings
from tidemark.errors import ConfigError
from tidemark.findings import Finding
from tidemark.parts import Broken

DEFAULT = "tidemark.yaml"
VARIABLE = "TIDEMARK_CONFIG"
LEAST = "The least it needs is one line: `store: .tidemark`."
ELSEWHERE = f"Name another file with --config FILE or the environment variable {VARIABLE}."
# For required settings that are wrong, while the rest is looked at.
STAND_INS = {"store": ".", "control": "sqlite:///control.db"}


def config_path(path: Path | None = None) -> Path:
    """The file itself, the one that TIDEMARK_CONFIG names, or ./tidemark.yaml."""
    return Path(path or os.environ.get(VARIABLE) or DEFAULT)


def load_config(path: Path | None = None) -> Config:
    """The configuration in the file, in the one that TIDEMARK_CONFIG names, or in ./tidemark.yaml.

    A connection that is wrong is out, and kept in `broken`; anything else that is wrong is an error.
    """
    config, findings = read_config(path)
    if findings:
        everything = [*findings, *(each for broken in config.broken for each in broken.findings)]
        raise ConfigError.of(sorted(everything, key=lambda each: each.line))
    return config


def read_config(path: Path | None = None) -> tuple[Config, tuple[Finding, ...]]:
    """As much of the configuration as is right, and what is wrong with the file.

    Connections that are wrong are in `config.broken` instead. A file that is not YAML is an error.
    """
    chosen = config_path(path)
    document = read_document(chosen, str(chosen), least=LEAST, elsewhere=ELSEWHERE)
    file = chosen.absolute()
    given = with_environment(document, _asked_for_later)
    _report_shared_subjects(given, document)
    origin = Origin(document.file, document.lines, file.parent)
    given = {**_with_names(given, origin), "(path)": file, "(origin)": origin}
    try:
        config = _validated(given)
    except ValidationError as error:
        document.problems += problems_of(error, document, Config)
    if not document.problems:
        return config, ()
    return _what_is_right(given, document), as_findings(document.file, _elsewhere(document.problems))


def _validated(given: dict[str, Any]) -> Config:
    return Config.model_validate(given, by_alias=True, by_name=False, context={"folder": given["(path)"].parent})


def _asked_for_later(place: Place) -> bool:
    # A run of one subject must not need the passwords of all the others. What is secret in `dagster-storage` stays a
    # reference for good: Dagster looks it up.
    if place == ("dagster-storage",) or place[0] == "credentials":
        return True
    return len(place) == 3 and place[0] == "connections" and place[2] == "url"


# --- what is wrong takes out as little as possible -------------------------------------------------------------------


def _what_is_right(given: dict[str, Any], document: Document) -> Config:
    """The configuration without connections and settings that are wrong. What needs no store can still be looked at."""
    broken = _broken_connections(document)
    given = {**given, "(broken)": broken}
    if isinstance(given.get("connections"), dict):
        names = {each.name for each in broken}
        given["connections"] = {name: each for name, each in given["connections"].items() if name not in names}
    wrong = {str(problem.place[0]) for problem in _elsewhere(document.problems) if problem.place}
    while True:
        stand_ins = {key: value for key, value in STAND_INS.items() if key in wrong}
        try:
            return _validated({key: value for key, value in given.items() if key not in wrong} | stand_ins)
        except ValidationError as error:  # what depends on a setting that is out is out as well
            also = {str(each["loc"][0]) for each in error.errors(include_input=False, include_url=False)}
            if also <= wrong:
                raise
            wrong |= also


def _elsewhere(problems: Iterable[Problem]) -> list[Problem]:
    return [each for each in problems if not _is_of_a_connection(each.place)]


def _is_of_a_connection(place: Place) -> bool:
    return len(place) > 1 and place[0] == "connections"


def _broken_connections(document: Document) -> tuple[Broken, ...]:
    by_name: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in document.problems:
        if _is_of_a_connection(problem.place):
            by_name[str(problem.place[1])].append(problem)
    return tuple(Broken(name, as_findings(document.file, problems)) for name, problems in by_name.items())


# --- connections -----------------------------------------------------------------------------------------------------


def _with_names(given: dict[str, Any], origin: Origin) -> dict[str, Any]:
    """Gives each connection its name, and where it is written."""
    connections = given.get("connections")
    if not isinstance(connections, dict):
        return given
    named = {}
    for name, settings in connections.items():
        place = ("connections", name, "url")
        extra = {"(name)": name, "(origin)": Origin(origin.file, {place: origin.line(place)}, origin.folder)}
        named[name] = {**settings, **extra} if isinstance(settings, dict) else settings
    return {**given, "connections": named}


def _report_shared_subjects(given: dict[str, Any], document: Document) -> None:
    """Two connections of one app and id would overwrite each other's state: neither is used."""
    connections = given.get("connections")
    sharing: defaultdict[str, list[str]] = defaultdict(list)
    for name, settings in connections.items() if isinstance(connections, dict) else ():
        if isinstance(settings, dict) and {"app", "id"} <= settings.keys():
            # As in the lake's table names, which know neither case nor punctuation.
            sharing[re.sub(r"[^a-z0-9]", "_", f"{settings['app']}/{settings['id']}".lower())].append(name)
    for names in sharing.values():
        for name in names if len(names) > 1 else ():
            others = ", ".join(f"'{each}'" for each in names if each != name)
            words = f"has the same app and id as {others} (case and punctuation aside). Give it an id of its own."
            document.report(("connections", name, "id"), words)
