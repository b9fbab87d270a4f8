"""Partition definitions: connections, streams, feeds."""
