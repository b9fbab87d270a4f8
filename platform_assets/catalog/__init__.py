"""The catalogue's part of the Dagster project."""
