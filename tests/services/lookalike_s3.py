"""S3 look-alikes in memory, with the faults that real ones have: conditions ignored, metadata dropped."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.etree import ElementTree

ALL_CONDITIONS = frozenset({"if-none-match", "if-match", "if-match of nothing"})


@dataclass
class Lookalike:
    """What the service does wrong, and what it holds: path → (body, metadata headers)."""

    obeys: frozenset[str] = ALL_CONDITIONS
    keeps_metadata: bool = True
    offers_conditions: bool = True
    # What becomes of a condition on a delete: "obeyed", "ignored", "refused" (501), or "obeyed and silent", as by AWS's
    # directory buckets, which answer "deleted" about an object that was not there.
    conditional_deletes: str = "obeyed"
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    endpoint: str = ""


@contextmanager
def lookalike_s3(lookalike: Lookalike) -> Iterator[Lookalike]:
    """Serves the look-alike on 127.0.0.1 for as long as the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(lookalike))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    lookalike.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield lookalike
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def _handler_for(lookalike: Lookalike) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # Else boto3 waits a second for "100 Continue" on every PUT.

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not lookalike.offers_conditions and ("If-Match" in self.headers or "If-None-Match" in self.headers):
                self._answer(501)
            elif self._condition_fails():
                self._answer(412)
            else:
                kept = {n: v for n, v in self.headers.items() if n.lower().startswith("x-amz-meta-")}
                lookalike.objects[self._path()] = (body, kept if lookalike.keeps_metadata else {})
                self._answer(200, headers={"ETag": _etag(body)})

        def do_GET(self) -> None:
            if self._path().count("/") == 1:  # the bucket itself
                self._answer(200)
            elif self._path() not in lookalike.objects:
                self._answer(404)
            else:
                body, metadata = lookalike.objects[self._path()]
                modified = {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
                self._answer(200, body, {"ETag": _etag(body), **modified, **metadata})

        do_HEAD = do_GET

        def do_POST(self) -> None:
            asked = ElementTree.fromstring(self.rfile.read(int(self.headers["Content-Length"])))
            for key in asked.iter("{http://s3.amazonaws.com/doc/2006-03-01/}Key"):
                lookalike.objects.pop(f"{self._path()}/{key.text}", None)
            self._answer(200, b"<DeleteResult/>")

        def do_DELETE(self) -> None:
            how, wanted = lookalike.conditional_deletes, self.headers.get("If-Match")
            current = lookalike.objects.get(self._path())
            fails = how == "obeyed" if current is None else how.startswith("obeyed") and _etag(current[0]) != wanted
            if wanted and how == "refused":
                self._answer(501)
            elif wanted and fails:
                self._answer(412)
            else:
                lookalike.objects.pop(self._path(), None)
                self._answer(204)

        def _path(self) -> str:
            return self.path.partition("?")[0]

        def _condition_fails(self) -> bool:
            current = lookalike.objects.get(self._path())
            if "If-None-Match" in self.headers:
                return "if-none-match" in lookalike.obeys and current is not None
            if "If-Match" not in self.headers:
                return False
            if current is None:
                return "if-match of nothing" in lookalike.obeys
            return "if-match" in lookalike.obeys and _etag(current[0]) != self.headers["If-Match"]

        def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {
                **(headers or {}),
                "Content-Length": str(len(body)),
                "Connection": "close",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler
