"""A proxy in front of an S3 server that loses answers to conditional requests, or is out of order, when a test wants it."""

import http.client
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class LossyProxy:
    """What becomes of the next conditional requests, one entry each; after the last entry all goes well.

    "lose": carried out, answer lost. "swallow": never arrives. "dark": carried out, answer lost, and from then on
    nobody answers. "twice": sent twice, the second answer given. A number: not carried out, answered with that status.
    """

    upstream: str
    port: int = 0
    # The same for every request, for as long as it is set: "swallow" or a number.
    outage: str | int | None = None
    plan: deque[str | int] = field(default_factory=deque)
    # Answered with 503 if this says so of a request's path.
    fails: Callable[[str], bool] = lambda path: False
    before_forwarding: Callable[[], object] | None = None
    is_dark: bool = False
    break_off_bodies: int = 0
    seen: list[str] = field(default_factory=list)
    _stop: Callable[[], None] = lambda: None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Takes connections, always at the same port."""
        server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler_for(self, urlsplit(self.upstream).netloc))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self.port = server.server_port

        def stop() -> None:
            server.shutdown()
            thread.join()
            server.server_close()

        self._stop = stop

    def close(self) -> None:
        """From now on connections are refused, as by a service that is not running."""
        self._stop()
        self._stop = lambda: None


@contextmanager
def lossy_proxy(upstream: str) -> Iterator[LossyProxy]:
    """Forwards to the upstream endpoint for as long as the block lasts."""
    proxy = LossyProxy(upstream)
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()


def _handler_for(proxy: LossyProxy, upstream: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # Else boto3 waits a second for "100 Continue" on every PUT.

        def do_PUT(self) -> None:
            self.close_connection = True
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            conditional = "If-Match" in self.headers or "If-None-Match" in self.headers
            fate = proxy.plan.popleft() if conditional and proxy.plan else "forward"
            fate = fate if proxy.outage is None else proxy.outage
            fate = 503 if proxy.fails(self.path) else fate
            proxy.seen.append(f"{self.command} {fate}")
            if conditional and proxy.before_forwarding:
                proxy.before_forwarding()
            if isinstance(fate, int):
                self._answer(fate, [], b"")
                return
            if proxy.is_dark or fate == "swallow":
                return  # The connection closes without an answer.
            answer = self._forwarded(body)
            if fate == "twice":
                answer = self._forwarded(body)
            if fate in ("forward", "twice"):
                self._answer(*answer)
            proxy.is_dark = proxy.is_dark or fate == "dark"

        do_GET = do_HEAD = do_POST = do_DELETE = do_PUT

        def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(upstream, timeout=20)
            # All headers as they came, the signed Host among them.
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer.status, answer.getheaders(), content

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            length = next((value for name, value in headers if name.lower() == "content-length"), str(len(body)))
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "GET" and proxy.break_off_bodies:
                proxy.break_off_bodies -= 1
                body = body[: len(body) // 2]
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler
