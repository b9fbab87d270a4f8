"""The run that every system shares: lease, recovery, ledger, steps, publication, mark, events, upkeep.

Each name is imported when it is first used: a command that only lists names should not wait for a database driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.runs.reasons import Mode, Reason
    from tidemark.runs.recovery import DeadRun, recover
    from tidemark.runs.run import Run
    from tidemark.runs.subject import Confirm, Subject, Visible, moved_by

__all__ = ["Confirm", "DeadRun", "Mode", "Reason", "Run", "Subject", "Visible", "moved_by", "recover"]

_MODULES = {
    "reasons": ("Mode", "Reason"),
    "recovery": ("DeadRun", "recover"),
    "run": ("Run",),
    "subject": ("Confirm", "Subject", "Visible", "moved_by"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
