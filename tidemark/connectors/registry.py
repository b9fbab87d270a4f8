"""Finds a connector by its kind.

To add a kind, put one module named after it into `tidemark/connectors/kinds`, or an entry point of its name into the
group `tidemark.connectors`, with a subclass of `Connector` that names its `kind`.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from tidemark.config.problems import did_you_mean
from tidemark.connectors import kinds
from tidemark.connectors.contract import Connector
from tidemark.errors import ConfigError

ENTRY_POINTS = "tidemark.connectors"
BUILT_IN = ("cdc", "files", "kafka", "odata", "salesforce", "sql")


def known_kinds() -> tuple[str, ...]:
    """The kinds there is a connector for. No connector is loaded to find out: their drivers are slow to load."""
    return tuple(sorted({*_installed(), *Connector._by_kind}))


def connector_for(kind: str, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> Connector:
    """The connector of a kind, ready to read the source that the settings lead to."""
    return connector_class(kind)(settings, credentials)


def connector_class(kind: str) -> type[Connector]:
    """The class of a kind."""
    if kind not in Connector._by_kind:
        _load(kind)
    if kind not in Connector._by_kind:
        known = [each for each in known_kinds() if each != kind]
        raise ConfigError(
            f"there is no connector of the kind '{kind}'.{did_you_mean(kind, known)} Known: {', '.join(known)}."
        )
    return Connector._by_kind[kind]


@cache
def _installed() -> frozenset[str]:
    modules = {module.name for module in pkgutil.iter_modules(kinds.__path__) if not module.name.startswith("_")}
    return frozenset({*BUILT_IN, *modules, *entry_points(group=ENTRY_POINTS).names})


def _load(kind: str) -> None:
    """Loads only what is requested, so that another connector that is broken harms nobody."""
    if kind in _installed() and find_spec(f"{kinds.__name__}.{kind}"):
        importlib.import_module(f"{kinds.__name__}.{kind}")
    else:
        for entry_point in entry_points(group=ENTRY_POINTS, name=kind):
            entry_point.load()
