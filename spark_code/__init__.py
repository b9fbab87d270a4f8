"""Everything that runs on Spark: DataFrame in, DataFrame out, and the lake."""
