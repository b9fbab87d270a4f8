"""A proxy in front of an HTTP source that injects planned faults: for tests of connectors.

with FaultProxy("http://127.0.0.1:4004") as proxy:
    proxy.plan(Answered(503), Reset(), on="/Orders?")
    connector = connector_for("odata", {"url": f"{proxy.url}/odata/v4/shop"}, {})
"""

import gzip
import http.client
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# They belong to one connection, not to the message.
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
# With a time-out of zero, closing sends a reset.
NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Answered:
    """The source is not asked; this is the answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Late:
    """The source's own answer, so many milliseconds later."""

    milliseconds: float


@dataclass(frozen=True, slots=True)
class CutGzip:
    """The source's answer in gzip, without its end. Its length agrees: only unpacking shows it."""


@dataclass(frozen=True, slots=True)
class CutBody:
    """The first half of the source's answer; then the connection ends."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset without an answer."""


Fault = Answered | Late | CutGzip | CutBody | Reset
WEB_PAGE = Answered(200, b"<!DOCTYPE html><html><body>Please log in</body></html>", {"Content-Type": "text/html"})


class FaultProxy:
    """Forwards to `upstream`, each request `delay_ms` later. After the last planned fault there are none."""

    def __init__(self, upstream: str, delay_ms: float = 0.0) -> None:
        self.delay_ms = delay_ms
        # The paths that were requested, with their queries, in the order they came.
        self.seen: list[str] = []
        self._planned: list[tuple[str, Fault]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self, urlsplit(upstream).netloc))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def plan(self, *faults: Fault, on: str = "") -> None:
        """What becomes of the next requests whose path has `on` in it, one after another."""
        self._planned += [(on, fault) for fault in faults]

    def calm(self) -> None:
        """From now on no request has a fault."""
        with self._lock:
            self._planned.clear()

    def fault_for(self, path: str) -> Fault | None:
        with self._lock:
            self.seen.append(path)
            place = next((place for place, (on, _) in enumerate(self._planned) if on in path), None)
            return None if place is None else self._planned.pop(place)[1]

    def __enter__(self) -> "FaultProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler_for(proxy: FaultProxy, upstream: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        # One for each connection that is kept alive.
        source: http.client.HTTPConnection | None = None

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = proxy.fault_for(self.path)
            time.sleep((proxy.delay_ms + (fault.milliseconds if isinstance(fault, Late) else 0)) / 1000)
            if isinstance(fault, Reset):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                self.close_connection = True
            elif isinstance(fault, Answered):
                self._answer(fault.status, fault.headers, fault.body)
            else:
                status, headers, content = self._forwarded(body)
                if isinstance(fault, CutGzip):
                    packed = gzip.compress(content)
                    self._answer(status, headers | {"Content-Encoding": "gzip"}, packed[: len(packed) * 2 // 3])
                else:
                    self._answer(status, headers, content, cut=isinstance(fault, CutBody))

        do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

        def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            self.source = self.source or http.client.HTTPConnection(upstream, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            try:
                self.source.request(self.command, self.path, body or None, headers)
                answer = self.source.getresponse()
            except http.client.RemoteDisconnected:
                # The source closed a connection that had been idle: once more on a new one.
                self.source.close()
                self.source.request(self.command, self.path, body or None, headers)
                answer = self.source.getresponse()
            return (
                answer.status,
                {name: value for name, value in answer.getheaders() if name.lower() not in HOP},
                answer.read(),
            )

        def _answer(self, status: int, headers: Mapping[str, str], body: bytes, *, cut: bool = False) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = self.close_connection or cut

        def finish(self) -> None:
            if self.source is not None:
                self.source.close()
            super().finish()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler
