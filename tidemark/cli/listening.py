"""Whether a port is free, known before anything is started for it."""

import errno
import socket

from tidemark.errors import PortInUse, UsageError


def require_free(host: str, port: int, command: str) -> None:
    """Raises an error by name if nothing can listen there; `command` is what a port is written behind."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"nothing can listen on {host}:{port}: {error.strerror}.") from None
            raise PortInUse(
                f"another program listens on {host}:{port} already. Stop it, or choose another port: `{command} {port + 1}`."
            ) from None
