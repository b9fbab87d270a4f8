"""The network between the product and a server, which can be down: connections are cut, and new ones refused."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# With a time-out of zero, closing sends a reset.
NO_LINGER = struct.pack("ii", 1, 0)


class Line:
    """Forwards a port of this machine to another, while it is up."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._up = True
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"line to {upstream}", daemon=True).start()

    def down(self) -> None:
        """Every connection is reset, and so is every new one until it is up again."""
        with self._lock:
            self._up = False
            cut, self._open = self._open, set()
        for each in cut:
            _reset(each)

    def up(self) -> None:
        with self._lock:
            self._up = True

    def close(self) -> None:
        self._listener.close()
        self.down()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                server = None
                if self._up:
                    with suppress(OSError):
                        server = socket.create_connection(("127.0.0.1", self._upstream), timeout=10)
                if server is None:
                    _reset(client)
                    continue
                server.settimeout(None)
                self._join(client, server)

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            if self._up:
                self._open |= {client, server}
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()
                return
        _reset(client)
        server.close()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while block := source.recv(65536):
                target.sendall(block)
        for each in (source, target):
            with self._lock:
                self._open.discard(each)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def line_to(port: int) -> Iterator[Line]:
    """A line to a port of this machine, for as long as the block lasts."""
    line = Line(port)
    try:
        yield line
    finally:
        line.close()


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
