"""What a run of the catalogue keeps between its steps, and what another version of Tidemark kept."""

from pathlib import Path

import orjson
import pytest
import yaml

from spark_code.catalog.state import StagedState
from spark_code.catalog.subject import CatalogSubject
from spark_code.platform import Platform
from tidemark.config import load_config
from tidemark.runs import Run

pytestmark = pytest.mark.fast

STAGED = StagedState("catalog.shop", "r1", 1, 2, ("shop/note",), {"CREATED": 3})


@pytest.fixture
def subject(tmp_path: Path) -> CatalogSubject:
    shop = {"app": "sqlite", "id": "1", "url": f"sqlite:///{tmp_path}/shop.db"}
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "connections": {"shop": shop}}))
    config = load_config(tmp_path / "tidemark.yaml")
    return CatalogSubject(Platform(config), config.connection("shop"))


def test_what_a_run_staged_is_found_again(subject: CatalogSubject) -> None:
    subject.save_staged(STAGED)
    assert subject.find_staged("r1") == STAGED
    assert not subject.is_of_another_version("r1")
    assert (subject.find_staged("r2"), subject.is_of_another_version("r2")) == (None, False)


@pytest.mark.parametrize("form", [{}, {"form": 0}, {"form": 99, "more": 1}])
def test_what_another_version_staged_is_not_taken_for_ours(subject: CatalogSubject, form: dict[str, int]) -> None:
    old = {"table": "catalog.shop", "run_id": "r1", "base": 1, "snapshot": 2, **form}
    subject.store.put(f"{subject.layout.extracted('r1')}/staged.json", orjson.dumps(old))
    assert subject.find_staged("r1") is None
    assert subject.is_of_another_version("r1")


def test_a_plan_of_another_version_stops_no_recovery(subject: CatalogSubject) -> None:
    """A run that was killed before an upgrade is settled after it."""
    old = {"connection": "shop", "run_id": "r1", "mode": "incremental", "reason": "marker and state agree"}
    subject.store.put(f"{subject.layout.run('r1')}/plan.json", orjson.dumps(old))
    assert subject.find_plan("r1") is None
    subject.control.runs.begin(subject.address, "r1")
    with Run(subject, "r2"):
        assert subject.control.runs.find(subject.address, "r1").status == "abandoned"
