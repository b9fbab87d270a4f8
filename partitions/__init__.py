"""Partition definitions: connections, streams, models."""
