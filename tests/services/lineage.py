"""A lineage backend: a real HTTP server that keeps what it is sent, can refuse it, and can be slow."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any


class LineageBackend(ThreadingHTTPServer):
    """`status` is what it answers; while `silent`, it takes requests and answers none."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str | None]] = []
        self.status = 201
        self.speaks = Event()
        self.speaks.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: LineageBackend

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers["Authorization"]))
        self.server.speaks.wait()
        if self.server.status < 300:
            self.server.events.append(json.loads(body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""


@contextmanager
def lineage_backend() -> Iterator[LineageBackend]:
    with LineageBackend() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.speaks.set()
            server.shutdown()
            thread.join()
