"""The command line. Packages above plug their commands in by entry points: nothing here imports them."""

from tidemark.cli.app import main

__all__ = ["main"]
