"""Tidemark's domain in plain Python: no Spark, no Dagster."""
