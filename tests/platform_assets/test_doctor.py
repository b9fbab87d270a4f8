"""What the doctor says about the store: also what it cannot do."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from platform_assets import doctor
from spark_code.platform import Platform
from tests.catalog.harness import SqliteSource
from tests.services.lookalike_s3 import Lookalike, lookalike_s3
from tidemark.cli.app import build
from tidemark.config import load_config

pytestmark = pytest.mark.fast


def platform_with(folder: Path, store: object) -> Platform:
    (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": store, "control": f"sqlite:///{folder}/control.db"}))
    return Platform(load_config(folder / "tidemark.yaml"))


def test_a_folder_deletes_on_conditions(tmp_path: Path) -> None:
    assert doctor.store(platform_with(tmp_path, "state")) == f"{tmp_path}/state, conditional deletes: yes"


@pytest.mark.parametrize(("how", "words"), [("obeyed", "conditional deletes: yes"), ("ignored", "conditional deletes: no")])
def test_the_doctor_says_whether_an_s3_deletes_on_conditions(tmp_path: Path, how: str, words: str) -> None:
    with lookalike_s3(Lookalike(conditional_deletes=how)) as lookalike:
        said = doctor.store(platform_with(tmp_path, {"url": "s3://bucket/prefix", "endpoint": lookalike.endpoint}))
    assert said.startswith("s3://bucket/prefix, ")
    assert words in said
    assert ("a write in between is lost" in said) == (how == "ignored")


def examined(folder: Path, **config: object) -> tuple[int, list[tuple[str, str, str]]]:
    (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", **config}))
    done = CliRunner().invoke(build(), ["doctor", "--json", "--config", str(folder / "tidemark.yaml")])
    return done.exit_code, [(each["what"], each["status"], each["why"]) for each in json.loads(done.stdout)]


def test_the_doctor_reports_all_that_is_wrong_with_the_configuration_and_looks_at_the_rest(tmp_path: Path) -> None:
    (tmp_path / "torn.yaml").write_text("connector: torn\nkind: sqll\nstreams: [{id: a, key: [a]}]\n")
    code, found = examined(tmp_path, connectors=["torn.yaml"], models="modells")
    assert code == 2
    wrong = [why for what, status, why in found if (what, status) == ("configuration", "failed")]
    assert [each.removeprefix(f"{tmp_path}/").partition(": ")[0] for each in wrong] == ["tidemark.yaml:3", "torn.yaml:2"]
    assert ("control database", "ok", "reachable and up to date") in found


def test_the_doctor_stops_behind_the_configuration_if_it_does_not_say_where_everything_is(tmp_path: Path) -> None:
    code, found = examined(tmp_path, control="mysql://host/x")
    assert code == 2
    assert [(what, status) for what, status, _ in found] == [("configuration", "failed")]


def test_the_doctor_asks_every_source_and_names_patterns_that_match_nothing(tmp_path: Path) -> None:
    SqliteSource(tmp_path / "shop.db").execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    url = f"sqlite:///{tmp_path}/shop.db"
    streams = [{"id": "shop.orders", "source": "orders", "key": ["id"]}]
    (tmp_path / "shop.yaml").write_text(
        yaml.safe_dump({"connector": "shop", "kind": "sql", "settings": {"url": url}, "streams": streams})
    )
    shop = {"app": "sqlite", "id": "1", "url": url, "include": ["main.orders", "main.carts"]}
    code, found = examined(tmp_path, connections={"shop": shop}, connectors=["shop.yaml"])
    assert code == 1
    assert ("configuration", "ok", "1 connections, 1 connectors, 0 models") in found
    assert ("connector shop", "ok", "1 tables, entities, files or topics; 1 streams") in found
    (connection,) = [row for row in found if row[0] == "connection shop"]
    assert connection[1] == "failed"
    assert "include: no table in scope matches main.carts." in connection[2]
