"""Two hosts, each with its own DAGSTER_HOME and its own code server, share one Dagster instance in PostgreSQL."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus

from platform_assets.instance import open_instance, prepare_home
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tests.services.web_ui import stop
from tests.services.where_it_ran import HOST, RAN_ON
from tidemark.config import load_config
from tidemark.errors import DagsterUnreachable

pytestmark = pytest.mark.service

DAGSTER = Path(sys.executable).with_name("dagster")
DAEMON = Path(sys.executable).with_name("dagster-daemon")
PASSWORD = "DAGSTER_PASSWORD"
CANARY = "canary/9b:4@1"
PATIENCE = 80  # less than a test may take


@dataclass(frozen=True)
class Host:
    """A machine, as far as Dagster can see: a folder, an environment, and the processes started there."""

    name: str
    folder: Path
    port: int

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"DAGSTER_HOME": str(self.home), HOST: self.name, PASSWORD: CANARY}

    @contextmanager
    def process(self, name: str, *command: str | Path) -> Iterator[None]:
        with (self.folder / f"{name}.log").open("w") as log:
            started = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield
        finally:
            stop(started)

    def launch(self, location: str) -> None:
        """Asks for a run in the code location of that name, at a shell of this host."""
        command = [DAGSTER, "job", "launch", "-w", self.folder / "workspace.yaml", "-l", location, "-j", "where"]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def runs(self) -> list[DagsterRun]:
        """The runs that this host sees, as its own dagster.yaml says."""
        with DagsterInstance.from_config(str(self.home)) as instance:
            return list(instance.get_runs())

    def said(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in self.folder.glob("*.log"))


@pytest.fixture
def storage(pg: PostgresServer) -> str:
    """A database of a role with a password, as `dagster-storage` names it."""
    role = f"dagster_{uuid4().hex[:8]}"
    url = pg.new_database()
    pg.execute(
        pg.url(), f"CREATE ROLE {role} LOGIN PASSWORD '{CANARY}'", f"ALTER DATABASE {url.rpartition('/')[2]} OWNER TO {role}"
    )
    return f"postgresql://{role}:${{{PASSWORD}}}@127.0.0.1:{pg.port}/{url.rpartition('/')[2]}"


@pytest.fixture
def hosts(tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Host, Host]:
    monkeypatch.setenv(PASSWORD, CANARY)
    both = tuple(Host(name, tmp_path / name, free_port()) for name in ("first", "second"))
    servers = [{"grpc_server": {"host": "127.0.0.1", "port": host.port, "location_name": host.name}} for host in both]
    for host in both:
        host.folder.mkdir()
        document = {"store": "state", "dagster-home": "home", "dagster-storage": storage}
        (host.folder / "tidemark.yaml").write_text(yaml.safe_dump(document))
        (host.folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": servers}))
        prepare_home(load_config(host.folder / "tidemark.yaml"))
    return both[0], both[1]


def wait_for(seen: Callable[[], bool], hosts: tuple[Host, Host]) -> None:
    latest = time.monotonic() + PATIENCE
    while not seen():
        if time.monotonic() > latest:
            pytest.fail("\n".join(host.said() for host in hosts))
        time.sleep(0.5)


def test_each_host_runs_what_either_launches_and_both_see_all_runs(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    with ExitStack() as running:
        for host in hosts:
            serve = [DAGSTER, "api", "grpc", "-m", "tests.services.where_it_ran", "-h", "127.0.0.1", "-p", str(host.port)]
            running.enter_context(host.process("code-server", *serve, "--location-name", host.name))
        wait_for(lambda: all("Started Dagster code server" in host.said() for host in hosts), hosts)
        # One daemon for both: it takes runs from the queue and hands each to the code server of its location.
        running.enter_context(first.process("daemon", DAEMON, "run", "-w", str(first.folder / "workspace.yaml")))

        first.launch("second")
        wait_for(lambda: [run.status for run in second.runs()] == [DagsterRunStatus.SUCCESS], hosts)
        assert [run.tags[RAN_ON] for run in second.runs()] == ["second"]

        second.launch("first")
        wait_for(lambda: [run.status for run in first.runs()] == [DagsterRunStatus.SUCCESS] * 2, hosts)
        assert [run.tags[RAN_ON] for run in first.runs()] == ["first", "second"]

    assert {run.run_id for run in first.runs()} == {run.run_id for run in second.runs()}
    assert not [path for host in hosts for path in host.home.rglob("*.db")], "SQLite is used as well"
    assert not [
        path
        for host in hosts
        for path in host.folder.rglob("*")
        if path.is_file() and CANARY in path.read_text(errors="ignore")
    ]


def test_a_run_of_the_command_line_is_seen_by_the_other_host(hosts: tuple[Host, Host]) -> None:
    from tests.services.where_it_ran import where

    first, second = hosts
    os.environ[HOST] = first.name
    with open_instance(load_config(first.folder / "tidemark.yaml")) as instance:
        done = where.execute_in_process(instance=instance)
    assert [(run.run_id, run.tags[RAN_ON]) for run in second.runs()] == [(done.run_id, "first")]


def test_a_storage_that_is_away_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, CANARY)
    url = f"postgresql://dagster:${{{PASSWORD}}}@127.0.0.1:{free_port()}/runs?connect_timeout=2"
    (tmp_path / "tidemark.yaml").write_text(
        yaml.safe_dump({"store": "state", "dagster-home": "home", "dagster-storage": url})
    )
    with pytest.raises(DagsterUnreachable, match=r"dagster@127.0.0.1:\d+/runs cannot be opened") as away:
        open_instance(load_config(tmp_path / "tidemark.yaml"))
    assert CANARY not in str(away.value)
