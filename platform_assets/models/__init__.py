"""Models in Dagster: an asset and its checks per model, and the command `tidemark model`."""
