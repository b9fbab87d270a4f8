"""Spark's own daemon, which forks its Python workers, with what tasks need already imported."""

import gc

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import spark_code.connectors.slices  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
