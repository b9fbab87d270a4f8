"""Tidemark's assets, checks, jobs, schedules and sensors."""
