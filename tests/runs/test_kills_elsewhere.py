"""The kill suite with the store and the lake on S3, and the control database and the lake's catalogue on PostgreSQL.

By default a slice that rotates by a seed, which is printed: kills are slow there. `TIDEMARK_KILLS=all` kills everywhere.
"""

import secrets
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.catalog import kills as catalog
from tests.catalog.harness import SparkForTests
from tests.connectors import kills as connectors
from tests.models import kills as models
from tests.runs.kills import Kills, Scenario, parts_of, rotating
from tests.runs.places import Folder, Remote
from tests.services.postgres import PostgresServer
from tests.services.s3 import S3Server

pytestmark = [pytest.mark.service, pytest.mark.fault]

SYSTEMS: dict[str, tuple[Any, dict[str, Scenario[Any]]]] = {
    "catalog": (catalog.CatalogVictim, catalog.SCENARIOS),
    "stream": (connectors.StreamVictim, connectors.SCENARIOS),
    "model": (models.ModelVictim, models.COMMON),
}
ALWAYS, MORE = "incremental run", 2
# Of the points at which a run is killed, so that no test takes minutes.
PARTS = 5
CASES = [
    (system, scenario)
    for system, (_, scenarios) in SYSTEMS.items()
    for scenario in rotating(system, scenarios, ALWAYS, MORE)
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def state_keys() -> Iterator[None]:
    """On PostgreSQL no key is made by itself."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TIDEMARK_STATE_KEYS", f"test:{b64encode(secrets.token_bytes(32)).decode()}")
        yield


@pytest.fixture(scope="module", params=CASES, ids=map(": ".join, CASES))
def kills(
    state_keys: None,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkForTests,
    s3: S3Server,
    pg: PostgresServer,
) -> Iterator[Kills[Any]]:
    system, name = request.param
    victim, scenarios = SYSTEMS[system]
    folder, bucket, database = tmp_path_factory.mktemp("kills"), s3.new_bucket(), pg.new_database()
    store = {"url": f"s3://{bucket}/tidemark", "endpoint": s3.endpoint, "region": s3.region}
    made = victim.make(folder / "here", spark, store=store, control=database)
    place = Remote(Folder(folder / "here"), s3, bucket, database)
    few = 4 if name == ALWAYS else 2
    kills_of_it = Kills(made, scenarios[name], place, folder / "trace", parts=PARTS, few=few)
    yield kills_of_it
    kills_of_it.close()
    pg.drop_database(database)


@pytest.mark.parametrize("part", parts_of(PARTS))
def test_whatever_is_killed_is_put_right_by_the_next_run(kills: Kills[Any], part: int | None) -> None:
    kills.part(part)
