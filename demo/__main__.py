"""`make run`: a full run, a migration, an incremental run, two days of trade, three models; run again, it goes on."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import psycopg
from dagster import DagsterInstance
from rich.console import Console

from demo.migration import migration
from demo.postgres import postgres
from demo.trade import LINES, carts, deliver, new_column
from tidemark.cli.ending import end_at_once, leave
from tidemark.config import Config, load_config
from tidemark.errors import TidemarkError
from tidemark.terminal import hold, silence_others

HERE = Path(__file__).parent
ROOT = HERE.parent
DATABASE = "shop"
TENANT = "default"
CARTS, AGAIN = "shop.carts", "10 seconds"  # their safety window
STREAMS = (("shop", CARTS), ("deliveries", "deliveries.lines"))
NEXT = """
Where to look next:
  make ui                             assets, checks and these runs in Dagster
  make run                            again: only what changed since is read
  .tidemark/persistent-artifacts/     marker.txt, current-state/, runs/
  .venv/bin/tidemark status           how everything is doing
  .venv/bin/tidemark catalog history shop
  .venv/bin/tidemark stream history default/shop/shop.carts
  .venv/bin/tidemark model lineage gold.deliveries
  .venv/bin/tidemark --help           catalog, stream, model: run, plan, …"""
console = Console(highlight=False)


def home() -> Path:
    """Where the shop's data live. PostgreSQL refuses to run as root: its own user must be able to get there."""
    if os.geteuid() == 0:
        return Path("/var/tmp") / f"tidemark-demo-{sha256(str(ROOT).encode()).hexdigest()[:8]}"
    return ROOT / ".tidemark" / "demo"


def deliveries() -> Path:
    """Where suppliers' files appear."""
    return ROOT / ".tidemark" / "deliveries"


@contextmanager
def shop() -> Iterator[str]:
    """The shop's URL while its server runs."""
    folder = home()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    with postgres(folder) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if not known:
                connection.execute(f"CREATE DATABASE {DATABASE}")
        url = server.url(DATABASE)
        if not known:
            with psycopg.connect(url) as connection:
                connection.execute((HERE / "shop.sql").read_bytes())
        yield url


def next_migration(url: str) -> list[str]:
    """Applies the next migration in one transaction; how far it got is kept in the database's own comment."""
    with psycopg.connect(url) as connection:
        comment = connection.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", [DATABASE]
        )
        row = comment.fetchone()
        step = int((row[0] if row and row[0] else "step 0").rpartition(" ")[2]) + 1
        statements = migration(step)
        for statement in statements:
            connection.execute(statement.encode())
        connection.execute(f"COMMENT ON DATABASE {DATABASE} IS 'The demo shop, step {step}'".encode())
    return statements


def bring_up_to_date(config: Config, instance: DagsterInstance) -> None:
    from platform_assets.catalog.commands import print_labels
    from platform_assets.catalog.launch import launch
    from tidemark.cli.progress import progress

    with progress():
        record = launch(config, instance, "shop", full=False, allow_removals=False)
    print_labels(record)


def trade(url: str, folder: Path) -> None:
    """A day of trade: new and changed carts, and one more delivery."""
    with psycopg.connect(url) as connection:
        for statement in carts():
            connection.execute(statement.encode())
    deliver(folder, 1 + len(list(folder.glob("*.csv"))))


def land(instance: DagsterInstance, url: str) -> None:
    """Lands what is new, and says how much of what the source has that was."""
    from platform_assets.connectors.launch import launch
    from tidemark.cli.noun import print_run
    from tidemark.cli.output import print_line
    from tidemark.cli.progress import progress

    there = {CARTS: carts_in(url), "deliveries.lines": LINES * len(list(deliveries().glob("*.csv")))}
    for connector, stream in STREAMS:
        with progress():
            record = launch(instance, TENANT, connector, stream, full=False)
        print_run(record)
        read = record.detail.get("rows", {}).get("read", 0)
        again = (
            f"; those of the last {AGAIN} before the mark again" if record.mode == "incremental" and stream == CARTS else ""
        )
        print_line(f"   {read:,} of the {there[stream]:,} records that the source has were read{again}", style="bold")


def carts_in(url: str) -> int:
    with psycopg.connect(url) as connection:
        counted = connection.execute("SELECT count(*) FROM sales.cart").fetchone()
    return int(counted[0]) if counted else 0


def widen(url: str) -> str:
    """The shop's developers give carts one more column."""
    with psycopg.connect(url) as connection:
        known = connection.execute("SELECT count(*) FROM information_schema.columns WHERE table_name = 'cart'").fetchone()
        statement = new_column(known[0] if known else 0)
        connection.execute(statement.encode())
    return statement


def build(config: Config, instance: DagsterInstance) -> None:
    """Brings all models up to date, in the order in which they read each other."""
    from platform_assets.models.commands import shown
    from platform_assets.models.launch import launch
    from tidemark.cli.noun import print_run
    from tidemark.cli.progress import progress
    from tidemark.control import ControlDatabase
    from tidemark.models.graph import load_project

    with progress():
        project = load_project(config)
        done = launch(instance, ControlDatabase(config.control), project, project.selected(()))
    for each in done:
        result = shown(each.name, each.record, each.failure)
        if result["error"]:
            raise TidemarkError(result["error"])
        if each.record:
            print_run(each.record)


def tell() -> None:
    from platform_assets.catalog.commands import diff
    from platform_assets.instance import open_instance
    from platform_assets.models.commands import model_plan

    config = load_config(ROOT / "tidemark.yaml")
    with shop() as url, open_instance(config) as instance:
        os.environ |= {"SHOP_URL": url, "DELIVERIES": str(deliveries())}
        console.rule("1. bring the catalogue up to date")
        bring_up_to_date(config, instance)
        console.rule("2. the shop's developers migrate")
        for statement in next_migration(url):
            console.print(f"   {statement}", markup=False)
        console.rule("3. read only what changed")
        bring_up_to_date(config, instance)
        console.rule("4. what is different now")
        diff("shop", "latest~1", "latest", config=config.path)
        console.rule("5. a day of trade, landed in Bronze")
        trade(url, deliveries())
        land(instance, url)
        console.rule("6. three models over Bronze")
        build(config, instance)
        console.rule("7. another day, and carts have one more column: only what is new is read")
        console.print(f"   {widen(url)}", markup=False)
        trade(url, deliveries())
        land(instance, url)
        console.rule("8. the models follow: first the plan, then the run")
        model_plan(config=config.path)
        build(config, instance)
    console.print(NEXT, soft_wrap=True)


def open_ui() -> int:
    with shop() as url:
        command = [str(Path(sys.executable).with_name("tidemark")), "ui", "--config", str(ROOT / "tidemark.yaml")]
        process = subprocess.Popen(command, env=os.environ | {"SHOP_URL": url, "DELIVERIES": str(deliveries())})
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            return process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m demo")
    parser.add_argument("--ui", action="store_true", help="open the web UI instead")
    end_at_once()
    hold()
    if parser.parse_args().ui:
        leave(open_ui())
    silence_others()
    tell()
    leave(0)
