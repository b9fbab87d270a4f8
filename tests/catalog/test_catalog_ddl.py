"""After every kind of DDL: the incremental state equals a fresh full read in an empty store, labels aside."""

import json
from pathlib import Path

import pytest

from tests.catalog import many  # noqa: F401  (registers the pack)
from tests.catalog.ddl_cases import cases_of
from tests.catalog.harness import Catalog, SparkForTests
from tests.catalog.sources import TestedSource, duckdb_source, postgresql_source, sqlite_source
from tests.services.postgres import PostgresServer
from tidemark.catalog.rows import Kind


def sources_of(app: str, folder: Path, pg: PostgresServer | None) -> list[TestedSource]:
    """One database per case."""
    made = []
    for number, _ in enumerate(cases_of(app)):
        place = folder / f"case_{number}"
        place.mkdir(parents=True)
        if app == "postgresql":
            assert pg
            made.append(postgresql_source(pg))
        else:
            made.append(sqlite_source(place) if app == "sqlite" else duckdb_source(place))
    return made


@pytest.mark.service
@pytest.mark.parametrize("app", ["sqlite", "duckdb", "postgresql"])
def test_after_every_kind_of_ddl_an_incremental_run_equals_a_full_one(
    app: str, tmp_path: Path, spark: SparkForTests, request: pytest.FixtureRequest
) -> None:
    cases = cases_of(app)
    server = request.getfixturevalue("pg") if app == "postgresql" else None
    sources = sources_of(app, tmp_path / "sources", server)
    url = "many://" + json.dumps({f"case_{n}": [app, source.url] for n, source in enumerate(sources)})
    for case, source in zip(cases, sources, strict=True):
        source.execute(*case.setup_for(app))
    catalog = Catalog.make(tmp_path / "incremental", spark, None, {"app": "many", "url": url})
    catalog.run()
    for case, source in zip(cases, sources, strict=True):
        source.execute(*case.change_for(app))
    record = catalog.run(allow_removals=True)
    assert record.mode == "incremental"

    fresh = Catalog.make(tmp_path / "full", spark, None, {"app": "many", "url": url})
    fresh.run()
    incremental, full = by_case(catalog.unlabelled()), by_case(fresh.unlabelled())
    for number, case in enumerate(cases):
        assert incremental[f"case_{number}"] == full[f"case_{number}"], case.name
    assert incremental == full

    labels = labels_by_case(catalog, record.run_id)
    for number, case in enumerate(cases):
        assert labels.get(f"case_{number}", {}) == case.labels_for(app), case.name
    assert len(cases) >= 40


def by_case(entities: list[dict[str, dict[str, str]]]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for entity in entities:
        found.setdefault(entity["attributes"]["qualifiedName"].split("/")[3], []).append(entity)
    return found


def labels_by_case(catalog: Catalog, run_id: str) -> dict[str, dict[str, str]]:
    """Label of every table that is not NO CHANGE, by case and `schema.table`; removed ones from the diff."""
    found: dict[str, dict[str, str]] = {}
    for entity in catalog.state(Kind.TABLE):
        a = entity["attributes"]
        if a["incremental_state"] != "NO CHANGE":
            found.setdefault(a["databaseName"], {})[f"{a['schemaName']}.{a['name']}"] = a["incremental_state"]
    for entity in catalog.deleted(run_id, Kind.TABLE):
        a = entity["attributes"]
        found.setdefault(a["databaseName"], {})[f"{a['schemaName']}.{a['name']}"] = "REMOVED"
    return found
