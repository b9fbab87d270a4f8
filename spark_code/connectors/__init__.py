"""Connectors on Spark: slices read by tasks, landed in Bronze, published, and the state moved last."""
