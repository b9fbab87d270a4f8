"""A Spark Connect server in a process of its own: what a shared Spark looks like to its clients."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from demo.ports import free_port
from spark_code.java import java_home
from spark_code.session import DEFAULTS, EVERYTHING, cache_folder, jar_config, quiet_config

STOP_SECONDS = 20
START_SECONDS = 90
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def spark_connect(folder: Path, config: Mapping[str, str] | None = None) -> Iterator[str]:
    """Its address, `sc://…`, for `spark: {remote: …}`. It knows Iceberg, and no lake: that is the client's to tell."""
    port = free_port()
    settings = DEFAULTS | quiet_config(cache_folder())
    settings |= jar_config(EVERYTHING, cache_folder())
    settings |= {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **(config or {}),
    }
    command = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[2]", "--class", SERVER]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = os.environ | {
        "JAVA_HOME": str(java_home(cache_folder())),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with started([*command, "spark-internal"], port, folder, environment):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def started(command: list[str], port: int, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A process that answers on the port, with a folder and a log of its own; ended at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        _wait(server, port, folder / "log")
        yield
    finally:
        server.terminate()
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # Its shutdown hooks wait for each other now and then.
            server.kill()
            server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"Spark's server did not start: {log.read_text()[-2000:]}")
