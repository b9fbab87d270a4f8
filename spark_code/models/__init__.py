"""Models on Spark: queries kept in step with their sources."""
