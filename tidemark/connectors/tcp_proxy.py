"""A proxy in front of a server of any protocol that breaks connections off: for tests of connectors.

It is a process of its own: drivers may wait for it without letting other threads run.

    python -m tidemark.connectors.tcp_proxy HOST PORT [BYTES,BYTES,…]

prints its port. Each of the first connections is reset after so many bytes of the server's; all later ones go well.
"""

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

# With a time-out of zero, closing sends a reset.
NO_LINGER = struct.pack("ii", 1, 0)


@contextmanager
def tcp_proxy(host: str, port: int, resets: Sequence[int]) -> Iterator[int]:
    """The port of a proxy that runs for as long as the block lasts."""
    command = [sys.executable, "-m", __name__, host, str(port), ",".join(map(str, resets))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def serve(host: str, port: int, resets: list[int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            client, _ = listener.accept()
            limit = resets.pop(0) if resets else None
            try:
                server = socket.create_connection((host, port), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            threading.Thread(target=forward, args=(client, server, None), daemon=True).start()
            threading.Thread(target=forward, args=(server, client, limit), daemon=True).start()


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
    given = sys.argv[3] if len(sys.argv) > 3 else ""
    serve(sys.argv[1], int(sys.argv[2]), [int(each) for each in given.split(",") if each])
