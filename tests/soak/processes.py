"""The processes of a soak: a daemon and a code server that are restarted whenever they end, and what they start."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

from tests.services.ports import free_port
from tests.soak.place import BIN, TOKEN, Place


class Service(threading.Thread):
    """A process that is started again whenever it ends, as systemd would."""

    def __init__(self, place: Place, name: str, *command: str) -> None:
        super().__init__(name=f"supervisor of the {name}", daemon=True)
        self.what, self._place, self._command = name, place, command
        self._ended, self.starts = threading.Event(), 0
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        while not self._ended.is_set():
            with (self._place.folder / f"{self.what}.log").open("ab") as log:
                self.process = subprocess.Popen(
                    self._command,
                    cwd=self._place.folder,
                    env=self._place.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.starts += 1
            self.process.wait()
            self._ended.wait(1)

    @property
    def pid(self) -> int | None:
        """Of the process, while it lives."""
        return self.process.pid if self.process and self.process.poll() is None else None

    def stop(self) -> None:
        """No more restarts."""
        self._ended.set()
        if self.process:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(20)


def services(place: Place) -> tuple[Service, Service]:
    """Dagster's daemon, and the code server that it and its runs use."""
    port = str(free_port())
    location = {"host": "127.0.0.1", "port": int(port), "location_name": "tidemark"}
    workspace = place.folder / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": location}]}))
    serve = (
        "api",
        "grpc",
        "-m",
        "platform_assets.definitions",
        "-h",
        "127.0.0.1",
        "-p",
        port,
        "--location-name",
        "tidemark",
    )
    return (
        Service(place, "daemon", str(BIN / "dagster-daemon"), "run", "-w", str(workspace)),
        Service(place, "code server", str(BIN / "dagster"), *serve),
    )


def end_all(place: Place) -> None:
    """Ends whatever of this soak is left."""
    send(living(place), signal.SIGKILL)


def start_command(place: Place, *arguments: str) -> "subprocess.Popen[bytes]":
    """A command at a shell, with a process group of its own."""
    with (place.folder / "commands.log").open("ab") as log:
        log.write(f"\n$ tidemark {' '.join(arguments)}\n".encode())
        log.flush()
        return subprocess.Popen(
            [str(BIN / "tidemark"), *arguments],
            cwd=place.folder,
            env=place.environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def living(place: Place) -> list[psutil.Process]:
    """Every process of this soak, by the token in its environment."""
    mark = f"{TOKEN}={place.environment[TOKEN]}".encode()
    return [psutil.Process(pid) for pid in _with_environment(mark) if psutil.pid_exists(pid)]


def _with_environment(mark: bytes) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


def workers(place: Place) -> list[psutil.Process]:
    """Processes of runs: the code server spawns one for each."""
    return [each for each in living(place) if _says(each, "multiprocessing.spawn") and not _says(each, "resource_tracker")]


def _says(process: psutil.Process, *words: str) -> bool:
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return all(word in line for word in words)


def tree(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that descends from it."""
    with suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
