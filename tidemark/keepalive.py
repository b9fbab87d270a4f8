"""How a client of PostgreSQL notices a server that has gone without a word: in half a minute, not after two hours."""

from typing import Any

KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
