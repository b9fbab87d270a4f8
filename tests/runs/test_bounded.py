"""What runs and upkeep leave behind does not grow with the number of runs, in any system.

`TIDEMARK_BOUNDED=300` makes 300 runs of each system (`make bounded`). Otherwise a few, which show a leftover of every run.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.harness import SparkForTests
from tests.catalog.kills import CatalogVictim
from tests.connectors.kills import StreamVictim, write
from tests.models.kills import ModelVictim
from tests.runs.kills import Victim
from tests.runs.places import DATABASES
from tidemark.lake_names import RUN_ID

RUNS = int(os.environ.get("TIDEMARK_BOUNDED", "8"))
BETWEEN_UPKEEP = 2
# A version of a record is kept for good, in Bronze and in its manifests, and so is a row of the audit in the database.
A_RUN = 600


def changed_catalogue(victim: CatalogVictim, number: int) -> None:
    column = f"ALTER TABLE changing ADD COLUMN c{number} TEXT", f"ALTER TABLE changing DROP COLUMN c{number - 1}"
    victim.catalog.source.execute(*(column if number > 1 else column[:1]))


def changed_stream(victim: StreamVictim, number: int) -> None:
    moment = f"2026-02-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    write(victim.stream.folder / "shop.db", f"UPDATE orders SET item = 'pen', updated_at = '{moment}' WHERE id = 1")


def changed_model(victim: ModelVictim, number: int) -> None:
    victim.changed = bool(number % 2)


# What Iceberg itself bounds: versions of metadata that it keeps, and manifests of a table before it merges them.
METADATA, MANIFESTS = 21, 100


@dataclass(frozen=True)
class Left:
    """What is in the store, databases left out."""

    metadata: int
    manifests: int
    others: int
    size: int

    @classmethod
    def there(cls, folder: Path) -> "Left":
        found = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(DATABASES)]
        # Java keeps a checksum next to every local file that it writes.
        files = [path for path in found if path.suffix != ".crc"]
        metadata = Counter(path.parent for path in files if path.name.endswith(".metadata.json"))
        manifests = Counter(path.parent for path in files if path.suffix == ".avro")
        others = len(files) - metadata.total() - manifests.total()
        most = (max(each.values(), default=0) for each in (metadata, manifests))
        return cls(*most, others, sum(path.stat().st_size for path in found))


def said_by_snapshot(victim: Victim) -> dict[str, str]:
    published = victim.subject.platform.reader.published(victim.table)
    found = published.summary.additional_properties
    return {key: value for key, value in found.items() if key.startswith("tidemark.") and key != RUN_ID}


SYSTEMS = {
    "catalogue": (CatalogVictim, changed_catalogue),
    "stream": (StreamVictim, changed_stream),
    "model": (ModelVictim, changed_model),
}


@pytest.mark.parametrize(("kind", "change"), SYSTEMS.values(), ids=SYSTEMS)
def test_after_many_runs_there_is_no_more_than_after_a_few(
    tmp_path: Path, spark: SparkForTests, kind: Any, change: Callable[[Any, int], None]
) -> None:
    victim = kind.make(tmp_path / "here", spark)
    few = many = Left(0, 0, 0, 0)
    for number in range(1, RUNS + 1):
        change(victim, number)
        victim.run()
        if number % BETWEEN_UPKEEP == 0:
            noted = said_by_snapshot(victim)
            victim.maintain()
            assert said_by_snapshot(victim) == noted, "upkeep lost what the snapshot says of itself"
            assert not victim.mark_is_ahead()
            many = Left.there(tmp_path / "here" / "store")
            few = many if number <= RUNS // 2 else few
    grown = f"{few} after {RUNS // 2} runs, {many} after {RUNS}"
    assert few.others > 0
    assert many.others <= few.others, grown
    assert many.metadata <= METADATA, grown
    assert many.manifests <= MANIFESTS, grown
    if RUNS >= 2 * MANIFESTS:
        assert many.size <= 1.1 * few.size + A_RUN * RUNS / 2, grown
