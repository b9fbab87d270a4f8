"""Names for the shell's completion: what the configuration names. A configuration with errors has none, and no message."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tidemark.config import Config
    from tidemark.runs.system import System

Complete = Callable[[typer.Context, str], list[str]]


def subject_names(system: "System") -> Complete:
    """Subjects of a system as they are called behind its noun."""
    return _completing(lambda config: map(system.name, _addresses(system, config)))


def subject_addresses() -> Complete:
    """Subjects of all systems."""

    def addresses(config: "Config") -> Iterable[str]:
        from tidemark.runs.system import systems

        return [address for system in systems().values() for address in _addresses(system, config)]

    return _completing(addresses)


def _addresses(system: "System", config: "Config") -> list[str]:
    return [*(each.address for each in system.configured(config)), *system.more(config)]


def _completing(names: "Callable[[Config], Iterable[str]]") -> Complete:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from tidemark.config import load_config

        given = context.params.get("config")
        try:
            return [name for name in names(load_config(Path(given) if given else None)) if name.startswith(incomplete)]
        except Exception:  # a shell that completes is no place for an error of whatever kind
            return []

    return complete
