"""Sends things to a place that may be slow or away, without making anybody wait for it longer than they say."""

import logging
import os
import time
from collections.abc import Callable
from queue import Full, Queue
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_KEPT = 1_000  # what is not sent by then is dropped: a run's memory is for the run

log = logging.getLogger(__name__)


class Sender(Generic[T]):
    """Sends in a thread of its own, in order. What cannot be sent is dropped; that is logged once, until it works again."""

    def __init__(self, where: str, send: Callable[[T], object]) -> None:
        self._where = where
        self._send = send
        self._away = False
        self._owner = 0
        self._queue: Queue[T]

    def put(self, thing: T) -> None:
        """Returns at once."""
        if self._owner != os.getpid():  # the first time, and after a fork: threads and locks stay with the parent
            self._owner = os.getpid()
            self._queue = Queue(MOST_KEPT)
            Thread(target=self._work, name=f"sender to {self._where}", daemon=True).start()
        try:
            self._queue.put_nowait(thing)
        except Full as error:
            self._report(error)

    def drain(self, seconds: float) -> bool:
        """Waits until all is sent or dropped, no longer than that; whether it is."""
        if self._owner != os.getpid():
            return True
        latest = time.monotonic() + seconds
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                left = latest - time.monotonic()
                if left <= 0:
                    return False
                self._queue.all_tasks_done.wait(left)
        return True

    def _work(self) -> None:
        queue = self._queue
        while True:
            thing = queue.get()
            try:
                self._send(thing)
            except Exception as error:  # whatever it is, it must not end the thread
                self._report(error)
            else:
                if self._away:
                    log.info("%s can be reached again", self._where)
                self._away = False
            finally:
                queue.task_done()

    def _report(self, error: Exception) -> None:
        if not self._away:
            # The name only: the words of foreign errors may quote what was sent.
            status = getattr(getattr(error, "response", None), "status_code", None)
            name = type(error).__name__ + (f" {status}" if status else "")
            log.warning("%s gets no events (%s). Runs go on without it, and this is not logged again.", self._where, name)
        self._away = True
