"""A proxy in front of a server of any protocol that cuts a connection around one message of the client."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class CuttingProxy:
    """The next time the client sends `word`, its connection is cut: before the server hears it, or before it answers."""

    port: int
    word: bytes = b""
    carried_out: bool = True
    before_cut: Callable[[], object] | None = None
    cuts: int = 0
    requests: int = 0
    _sockets: list[socket.socket] = field(default_factory=list)

    def cut(self, word: bytes, *, carried_out: bool, before_cut: Callable[[], object] | None = None) -> None:
        self.carried_out, self.before_cut, self.word = carried_out, before_cut, word


@contextmanager
def cutting_proxy(upstream_port: int) -> Iterator[CuttingProxy]:
    """Forwards to a port of this machine for as long as the block lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = CuttingProxy(listener.getsockname()[1])
        threading.Thread(target=_accept, args=(proxy, listener, upstream_port), daemon=True).start()
        yield proxy
    for each in proxy._sockets:
        each.close()


def _accept(proxy: CuttingProxy, listener: socket.socket, upstream_port: int) -> None:
    with suppress(OSError):  # the listener is closed: the block has ended
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", upstream_port))
            proxy._sockets += [client, server]
            silent = threading.Event()
            threading.Thread(target=_answers, args=(server, client, silent), daemon=True).start()
            threading.Thread(target=_requests, args=(proxy, client, server, silent), daemon=True).start()


def _requests(proxy: CuttingProxy, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
    with suppress(OSError):
        while block := client.recv(65536):
            proxy.requests += 1
            if proxy.word and proxy.word in block:
                proxy.word = b""
                silent.set()
                if proxy.carried_out:
                    server.sendall(block)
                    _wait_for_answer(server)
                if proxy.before_cut:
                    proxy.before_cut()
                proxy.cuts += 1
                break
            server.sendall(block)
    for each in (client, server):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _wait_for_answer(server: socket.socket) -> None:
    """The answer is peeked at by two threads: both see that it came, and neither passes it on."""
    with suppress(OSError):
        server.recv(1, socket.MSG_PEEK)


def _answers(server: socket.socket, client: socket.socket, silent: threading.Event) -> None:
    with suppress(OSError):
        while server.recv(1, socket.MSG_PEEK) and not silent.is_set():
            client.sendall(server.recv(65536))
