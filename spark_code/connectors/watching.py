"""How far the slices of a run have come: what the tasks have noted, reported again and again while they work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from tidemark.connectors.landing import SliceDone
from tidemark.runs import Run
from tidemark.store import ObjectStore

EVERY = 0.5


@contextmanager
def watched(run: Run[Any], done: str, total: int) -> Iterator[None]:
    """Reports finished slices, their pages and records, and the rate, for as long as the block lasts."""
    stop = Event()
    thread = Thread(target=_watch, args=(run, run.subject.platform.store, done, total, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(run: Run[Any], store: ObjectStore, done: str, total: int, stop: Event) -> None:
    began, finished = time.monotonic(), dict[str, SliceDone]()
    earlier = {info.key for info in store.list(done + "/")}
    while not stop.wait(EVERY):
        new = [info.key for info in store.list(done + "/") if info.key not in finished and info.key not in earlier]
        if new:
            finished |= {key: SliceDone.from_json(store.read(key)) for key in new}
            ended, took = list(finished.values()), max(time.monotonic() - began, 0.001)
            pages, records = sum(each.pages for each in ended), sum(each.read for each in ended)
            note = f"{pages:,} pages, {records:,} records, {records / took:,.0f} a second"
            run.advance("slice", len(ended), total, rows=records, note=note)
