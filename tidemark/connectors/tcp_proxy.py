"""A proxy in front of a server of any protocol that breaks connections off: for tests of connectors.

It is a process of its own: drivers may wait for it without letting other threads run.

    python -m tidemark.connectors.tcp_proxy HOST PORT

prints its port. For each line `BYTES` that it reads, one of the next connections is reset after so many bytes of the
server's; all others are left alone, and after the line `calm` all of them.
"""

import queue
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

# With a time-out of zero, closing sends a reset.
NO_LINGER = struct.pack("ii", 1, 0)


CALM = "calm"


@dataclass(frozen=True)
class TcpProxy:
    port: int
    _orders: IO[str]
    _answers: IO[str]

    def reset(self, *after: int) -> None:
        """The next connections are reset, each after so many bytes of the server's."""
        for size in after:
            self._told(str(size))

    def calm(self) -> None:
        """From now on no connection is reset."""
        self._told(CALM)

    def _told(self, order: str) -> None:
        self._orders.write(f"{order}\n")
        self._orders.flush()
        self._answers.readline()


@contextmanager
def tcp_proxy(host: str, port: int, resets: Sequence[int] = ()) -> Iterator[TcpProxy]:
    """A proxy that runs for as long as the block lasts."""
    command = [sys.executable, "-m", __name__, host, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            proxy = TcpProxy(int(process.stdout.readline()), process.stdin, process.stdout)
            proxy.reset(*resets)
            yield proxy
        finally:
            process.kill()


def serve(host: str, port: int) -> None:
    resets: queue.SimpleQueue[int] = queue.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        threading.Thread(target=listen, args=(resets,), daemon=True).start()
        while True:
            client, _ = listener.accept()
            limit = None
            with suppress(queue.Empty):
                limit = resets.get_nowait()
            try:
                server = socket.create_connection((host, port), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            threading.Thread(target=forward, args=(client, server, None), daemon=True).start()
            threading.Thread(target=forward, args=(server, client, limit), daemon=True).start()


def listen(resets: "queue.SimpleQueue[int]") -> None:
    for line in map(str.strip, sys.stdin):
        if line == CALM:
            with suppress(queue.Empty):
                while True:
                    resets.get_nowait()
        else:
            resets.put(int(line))
        sys.stdout.write("\n")
        sys.stdout.flush()


def forward(source: socket.socket, target: socket.socket, limit: int | None) -> None:
    sent = 0
    with suppress(OSError):  # one of the two is gone: so is the other
        while block := source.recv(65536):
            if limit is not None and sent + len(block) > limit:
                target.sendall(block[: limit - sent])
                target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                break
            target.sendall(block)
            sent += len(block)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
