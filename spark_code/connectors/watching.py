"""How far the slices of a run have come: what the tasks have noted, told again and again while they work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from spark_code.connectors.slices import SliceDone
from tidemark.progress import report
from tidemark.store import ObjectStore

EVERY = 0.5


@contextmanager
def watched(store: ObjectStore, done: str, total: int) -> Iterator[None]:
    """Reports finished slices, their pages and records, and the rate, for as long as the block lasts."""
    stop = Event()
    thread = Thread(target=_watch, args=(store, done, total, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(store: ObjectStore, done: str, total: int, stop: Event) -> None:
    began, finished = time.monotonic(), dict[str, SliceDone]()
    earlier = {info.key for info in store.list(done + "/")}
    while not stop.wait(EVERY):
        new = [info.key for info in store.list(done + "/") if info.key not in finished and info.key not in earlier]
        if new:
            finished |= {key: SliceDone.from_json(store.read(key)) for key in new}
            report(told(list(finished.values()), total, time.monotonic() - began))


def told(finished: list[SliceDone], total: int, seconds: float) -> str:
    """`slice 3 of 8: …` means that two are finished and the third is under way."""
    pages, records = sum(each.pages for each in finished), sum(each.read for each in finished)
    return (
        f"slice {min(len(finished) + 1, total)} of {total}: {pages:,} pages, {records:,} records, "
        f"{records / max(seconds, 0.001):,.0f} a second"
    )
