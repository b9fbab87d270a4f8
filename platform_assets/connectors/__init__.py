"""Connectors in Dagster: assets, checks and jobs per stream, and the commands `ingest` and `stream`."""
