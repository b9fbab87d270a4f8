"""Models whose process was stopped, is taken for dead, and wakes up while another run is under way."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.catalog.harness import SparkForTests
from tests.models.harness import ModelLab
from tests.models.kills import NAME, SCENARIOS, ModelVictim
from tests.services.children import KILLED, Child, in_child

pytestmark = pytest.mark.fault


class Zombie:
    """Work in a child that stops at a point; everybody takes it for dead until it is woken."""

    def __init__(self, victim: ModelVictim, point: str, gate: Path, work: Callable[[ModelVictim], object]) -> None:
        self.gate, self.woken, lab = gate, False, victim.lab
        stops = {"TIDEMARK_FAULT": f"{point}:pause", "TIDEMARK_FAULT_GATE": str(gate)}
        self.child = Child(work, victim, environment=os.environ | stops)
        while not gate.with_suffix(".reached").exists():
            assert self.child.process.is_alive()
            time.sleep(0.02)
        with lab.platform.control._transactions._open().begin() as connection:  # as if a minute had passed
            connection.exec_driver_sql("UPDATE tidemark_leases SET expires_at = '2020-01-01 00:00:00.000000'")

    def wake(self) -> None:
        """It goes on, to its end. Waking it again does nothing."""
        if not self.woken:
            self.woken = True
            self.gate.touch()
            assert self.child.wait() == 1, "it must not think that it has finished"


def a_model(tmp_path: Path, spark: SparkForTests) -> ModelVictim:
    victim = ModelVictim.make(tmp_path / "here", spark)
    victim.changed = True
    return victim


def test_a_woken_first_run_leaves_the_table_that_another_has_published(tmp_path: Path, spark: SparkForTests) -> None:
    victim = a_model(tmp_path, spark)
    zombie = Zombie(victim, "models.before_first_table", tmp_path / "gate", ModelVictim.run)
    victim.run()
    wanted = victim.left()
    zombie.wake()
    assert victim.left() == wanted


def make_other_columns(victim: ModelVictim) -> None:
    victim.lab.source("id int", (1,))
    victim.lab.run(NAME, "SELECT 'x' AS other, id FROM source")


def test_a_first_run_takes_over_the_table_that_a_killed_one_made_with_other_columns(
    tmp_path: Path, spark: SparkForTests
) -> None:
    victim = a_model(tmp_path, spark)
    assert in_child(make_other_columns, victim, TIDEMARK_FAULT="models.after_write") == KILLED
    victim.run()
    assert list(victim.lab.columns(NAME)) == ["id", "at", "v"]
    assert [row["v"] for row in victim.lab.rows(NAME, "id")] == ["a", "b", "c"]


def show(number: int, victim: ModelVictim) -> None:
    victim.lab.run("shop.v", f"SELECT {number} AS id", materialization="view")


def test_a_woken_process_does_not_replace_a_newer_view(tmp_path: Path, spark: SparkForTests) -> None:
    victim = a_model(tmp_path, spark)
    zombie = Zombie(victim, "models.before_view", tmp_path / "gate", partial(show, 1))
    show(2, victim)
    zombie.wake()
    lab: ModelLab = victim.lab
    assert lab.spark.table("lake.shop.v").collect()[0]["id"] == 2
    assert [run.status for run in lab.platform.control.runs.history("model/shop.v")] == ["published", "abandoned"]


@pytest.mark.parametrize("point", ["models.before_write", "models.before_make"])
def test_a_woken_process_adds_nothing_to_a_refresh_that_another_run_goes_on_with(
    point: str, tmp_path: Path, spark: SparkForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = ModelVictim.make(tmp_path / "here", spark)
    SCENARIOS["full_incremental_refresh"].prepare(victim)
    zombie = Zombie(victim, point, tmp_path / "gate", ModelVictim.run)
    # The other run has written a chunk when the woken one goes on with the same.
    monkeypatch.setattr("spark_code.models.rebuild.fault_point", lambda _point: zombie.wake())
    victim.run()
    assert zombie.woken
    assert [(row["id"], row["w"]) for row in victim.lab.rows(NAME, "id")] == [(1, "A"), (2, "BB"), (3, "C")]
