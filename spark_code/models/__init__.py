"""Models on Spark: queries kept in sync with their sources."""
