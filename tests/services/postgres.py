"""PostgreSQL for tests: the demo's own server."""

from demo.postgres import PostgresServer, postgres

__all__ = ["PostgresServer", "postgres"]
