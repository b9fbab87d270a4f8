"""Who moves a mark, as far as the machine knows."""

import getpass
import socket


def actor() -> str:
    """`user@host`, best effort: an audit row must never fail for want of a name."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run as a user id that has no name
        user = "unknown"
    return f"{user}@{socket.gethostname() or 'unknown'}"
