"""Tidemark's assets, checks, jobs, schedules and sensors."""

import warnings

from dagster import PreviewWarning

# Partitioned asset checks are in preview. They are wanted: a verdict belongs to one connection.
warnings.filterwarnings("ignore", category=PreviewWarning)
