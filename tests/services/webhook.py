"""A web server in this process, which keeps what is posted to it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Webhook:
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    # So many requests are answered with an error first.
    refusals: int = 0


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A server on a free port."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if hook.refusals:
                hook.refusals -= 1
                self.send_response(503)
            else:
                hook.bodies.append(json.loads(body))
                hook.headers.append(dict(self.headers))
                self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.url = f"http://127.0.0.1:{server.server_port}/hooks/token-7c1e"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
