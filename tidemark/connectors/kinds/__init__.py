"""The connectors that come with Tidemark: one module per kind, named after it."""
