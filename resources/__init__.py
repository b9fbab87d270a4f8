"""The outside world as Dagster resources and I/O managers."""
