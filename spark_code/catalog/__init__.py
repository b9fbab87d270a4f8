"""The catalogue on Spark: reading columns, the ancestral merge, the mirror."""
