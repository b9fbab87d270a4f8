"""Control databases on SQLite and on PostgreSQL, as the tests of the control database have them."""

from tests.tidemark.control.conftest import (
    clock,
    control,
    control_postgres,
    control_postgres_url,
    control_url,
    kind,
    ordinary_control_url,
    ordinary_url,
)

__all__ = [
    "clock",
    "control",
    "control_postgres",
    "control_postgres_url",
    "control_url",
    "kind",
    "ordinary_control_url",
    "ordinary_url",
]
