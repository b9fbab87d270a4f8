"""The definitions load, and say what the design says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import AssetKey, Definitions

from partitions.catalog import connections
from platform_assets.instance import settings_text

ROOT = Path(__file__).parents[2]
LINEAGE = {
    "databases": set(),
    "schemas": {"databases"},
    "tables": {"schemas"},
    "columns": {"tables"},
    "current_state": {"databases", "schemas", "tables", "columns"},
    "incremental_diff": {"current_state"},
    "marker": {"current_state", "incremental_diff"},
}
CHECKS = {
    "current_state": {
        "decision_matrix",
        "no_orphan_columns",
        "no_duplicate_names",
        "counts_add_up",
        "carried_unchanged",
        "removals_within_guard",
    },
    "incremental_diff": {"diff_agrees_with_state"},
}


@pytest.fixture
def definitions(configured: Path) -> Definitions:
    from platform_assets.definitions import defs

    return defs


@pytest.mark.usefixtures("configured")
def test_dg_accepts_the_definitions_without_any_secret(tmp_path: Path) -> None:
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(settings_text())
    environment = {name: value for name, value in os.environ.items() if name != "SHOP_URL"}
    checked = subprocess.run(
        [Path(sys.executable).with_name("dg"), "check", "defs"],
        cwd=ROOT,
        env=environment | {"DAGSTER_HOME": str(home), "VIRTUAL_ENV": sys.prefix},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All definitions loaded successfully." in checked.stdout


@pytest.mark.fast
def test_the_repository_s_own_configuration_needs_no_secret_to_load(
    definitions: Definitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    from platform_assets.catalog.automation import schedules
    from tidemark.config import load_config

    monkeypatch.delenv("SHOP_URL", raising=False)
    assert [each.name for each in schedules(load_config(ROOT / "tidemark.yaml"))] == ["catalog_shop"]


@pytest.mark.fast
def test_seven_assets_tell_what_they_are_and_whose(definitions: Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    of_catalog = [node for node in graph.asset_nodes if node.group_name == "catalog"]
    assert {node.key.to_user_string() for node in of_catalog} == set(LINEAGE)
    for node in of_catalog:
        assert node.description
        assert node.kinds
        assert node.owners == ["team:data-platform"]
        assert node.partitions_def == connections


@pytest.mark.fast
def test_lineage_leads_from_databases_to_the_marker(definitions: Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    found = {name: graph.get(AssetKey(name)).parent_keys for name in LINEAGE}
    assert {name: {key.to_user_string() for key in keys} for name, keys in found.items()} == LINEAGE
    in_order = [key.to_user_string() for key in graph.toposorted_asset_keys]
    assert [name for name in in_order if name in LINEAGE] == list(LINEAGE)


@pytest.mark.fast
def test_seven_checks_stand_before_the_marker(definitions: Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    found: dict[str, set[str]] = {}
    for node in graph.asset_check_nodes:
        if node.key.asset_key.to_user_string() not in LINEAGE:
            continue
        found.setdefault(node.key.asset_key.to_user_string(), set()).add(node.key.name)
        assert node.blocking, node.key
        assert node.description, node.key
        assert node.partitions_def == connections, node.key
    assert found == CHECKS


@pytest.mark.fast
def test_one_job_holds_all_assets_and_checks(definitions: Definitions) -> None:
    job = definitions.resolve_job_def("catalog")
    assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == set(LINEAGE)
    assert {key.name for key in job.asset_layer.asset_graph.asset_check_keys} == set().union(*CHECKS.values())
    assert job.partitions_def == connections
