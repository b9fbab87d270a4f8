"""A SAP CAP server with an OData v4 service, from npm. Its packages are fetched once into the cache."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from spark_code.session import cache_folder
from tests.services.needs import need

HERE = Path(__file__).parent / "cap"
START_SECONDS = 60
LISTENING = re.compile(r"server listening on \{ url: 'http://localhost:([0-9]+)' \}")


@dataclass(frozen=True)
class CapServer:
    url: str
    user: str = "reader"
    password: str = "tide-mark"

    @property
    def shop(self) -> str:
        """The service that everybody may read."""
        return f"{self.url}/odata/v4/shop"

    def execute(self, *sql: str) -> None:
        """Runs statements in the server's own database."""
        answer = httpx.post(f"{self.url}/sql", content=json.dumps(sql), headers={"Content-Type": "text/plain"}, timeout=60)
        assert answer.status_code == 204, answer.text


@contextmanager
def cap(folder: Path) -> Iterator[CapServer]:
    """Starts a server with an empty database in memory, and stops it."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = fetched_packages()
    for name in ("package.json", "server.js", "services.cds"):
        shutil.copy(HERE / name, folder)
    (folder / "node_modules").symlink_to(packages / "node_modules")
    command = [need("node"), "node_modules/@sap/cds/bin/serve.js", "all", "--in-memory"]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, "PORT": "0"}
        )
    try:
        yield CapServer(f"http://127.0.0.1:{_port(log, process)}")
    finally:
        process.kill()
        process.wait()


def fetched_packages() -> Path:
    """The folder with the locked packages; made beside and moved, so that two runs at once do no harm."""
    locked = (HERE / "package-lock.json").read_bytes()
    folder = cache_folder() / "npm" / f"cap-{hashlib.sha256(locked).hexdigest()[:12]}"
    if folder.exists():
        return folder
    new = folder.with_name(f"{folder.name}.{os.getpid()}")
    new.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, new)
    command = [need("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=new, check=True, stdin=subprocess.DEVNULL, timeout=300)
    try:
        new.rename(folder)
    except OSError:
        shutil.rmtree(new)  # another run was quicker
    return folder


def _port(log: Path, process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        found = LISTENING.search(log.read_text())
        if found:
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the CAP server did not start:\n{log.read_text()}")
