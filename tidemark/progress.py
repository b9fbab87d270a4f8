"""Who wants to know how a long piece of work is coming along."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A step's name, and its seconds once it has ended.
Listener = Callable[[str, float | None], None]

_listeners: list[Listener] = []


def report(step: str, seconds: float | None = None) -> None:
    for listener in _listeners:
        listener(step, seconds)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Calls the listener for every step that begins or ends inside, in this process."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
