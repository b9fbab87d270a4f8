"""A Spark cluster on this machine: a master, and a worker that starts executors in processes of their own."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from demo.ports import free_port
from spark_code.java import packaged_java_home
from spark_code.session import cache_folder
from tests.services.spark_connect import started

MASTER, WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Its address, `spark://…`, for `spark: {master: …}`."""
    port, worker_port = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    command = f"{Path(pyspark.__file__).parent}/bin/spark-class"
    quiet = ["--host", "127.0.0.1", "--webui-port", "0"]
    environment = os.environ | {
        "JAVA_HOME": str(packaged_java_home(cache_folder())),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with ExitStack() as both:
        both.enter_context(started([command, MASTER, *quiet, "--port", str(port)], port, folder / "master", environment))
        worker = [command, WORKER, *quiet, "--port", str(worker_port), "--cores", "2", "--memory", "2g"]
        worker += ["--work-dir", str(folder / "work"), address]
        both.enter_context(started(worker, worker_port, folder / "worker", environment))
        yield address
