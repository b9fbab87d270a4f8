"""Ports for servers that tests start."""

from demo.ports import free_port

__all__ = ["free_port"]
