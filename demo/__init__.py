"""The demo behind `make run`: a small shop in PostgreSQL that changes a little every time."""
