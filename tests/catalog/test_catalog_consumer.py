"""A program that follows the documented layout: it applies the diffs of all runs that count, and ends at `current-state`."""

import os
import random
from dataclasses import dataclass, field

import pytest

from spark_code.catalog.rollback import roll_back
from tests.catalog.consumer import Consumer, by_name, name_of
from tests.catalog.harness import Catalog, SparkForTests
from tests.services.children import KILLED, in_child

pytestmark = pytest.mark.fault

# Sixty runs of one catalogue, in tests that each end in time.
ROUNDS, PARTS = 5, 12
# Places where a run may die: before it publishes, right after, in the mirror, before and after the marker.
POINTS = (
    "run.after_plan", "parts.after_write", "lake.after_branch", "state.between_delete_and_append", "diff.after_write",
    "lake.before_publish", "lake.after_publish", "mirror.after_manifest_delete", "marks.before_marker", "run.after_finish",
)  # fmt: skip


def change(catalog: Catalog, chance: random.Random, number: int) -> None:
    """A table comes, goes, or changes; sometimes nothing happens."""
    tables = sorted({entity["attributes"]["name"] for entity in catalog.state() if name_of(entity)[0] == "Table"})
    source = catalog.source
    what = chance.choice(["create", "create", "alter", "alter", "drop", "recreate", "nothing"])
    if what == "create" or len(tables) < 2:
        source.execute(f"CREATE TABLE t{number} (id INTEGER, name TEXT)")
    elif what == "alter":
        source.execute(f"ALTER TABLE {chance.choice(tables)} ADD COLUMN c{number} TEXT")
    elif what == "drop":
        source.execute(f"DROP TABLE {chance.choice(tables)}")
    elif what == "recreate":
        name = chance.choice(tables)
        source.execute(f"DROP TABLE {name}", f"CREATE TABLE {name} (other INTEGER)")


@dataclass
class Followed:
    """A catalogue and its consumer, which go on from test to test."""

    catalog: Catalog
    seed: int
    consumer: Consumer = field(default_factory=Consumer)
    rounds: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> Followed:
    seed = int(os.environ.get("TIDEMARK_SEED", random.randrange(10**6)))
    folder = tmp_path_factory.mktemp("followed") / "here"
    catalog = Catalog.of_sqlite(folder, spark, **{"max-removed-percent": 100})
    catalog.source.execute("CREATE TABLE first (id INTEGER)", "CREATE TABLE second (id INTEGER, name TEXT)")
    catalog.run()
    return Followed(catalog, seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_diffs_of_sixty_random_runs_with_rollbacks_and_kills_lead_to_the_current_state(
    followed: Followed, part: int
) -> None:
    print(f"TIDEMARK_SEED={followed.seed}")  # noqa: T201
    catalog, consumer, chance = followed.catalog, followed.consumer, followed.chance
    subject = catalog.subject
    assert followed.rounds == part * ROUNDS, "the parts before this one did not get to their end"
    for number in range(part * ROUNDS, (part + 1) * ROUNDS):
        fate = chance.choice(["run", "run", "run", "full", "kill", "kill", "roll back"])
        if fate == "roll back":
            kept = [run for run in subject.control.runs.history(subject.address) if run.snapshot and run.marker]
            roll_back(subject, chance.choice(kept))
        else:
            change(catalog, chance, number)
            if fate == "kill":
                code = in_child(Catalog.run, catalog, TIDEMARK_FAULT=chance.choice(POINTS))
                assert code in (KILLED, 0)  # a run without a change does not pass every point
            catalog.run(full=fate == "full")
        consumer.follow(catalog)
        assert consumer.entities == by_name(catalog.mirror()), (followed.seed, number, fate)
        followed.rounds = number + 1
    assert consumer.entities == by_name(catalog.state())
