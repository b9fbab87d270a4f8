"""A code location for tests that need a code server and nothing in it."""

from dagster import Definitions

defs = Definitions()
