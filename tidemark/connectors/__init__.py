"""Connectors: stateless readers of sources, and the manifests that say what they read."""
