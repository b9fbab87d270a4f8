"""Tidemark's assets, checks, jobs, schedules and sensors."""

import warnings

# Partitioned asset checks are in preview. They are wanted: a verdict belongs to one connection. Matched by its words: the
# command line imports this package, and should not wait for Dagster only to name a class of its.
warnings.filterwarnings("ignore", message=".*is currently in preview")
