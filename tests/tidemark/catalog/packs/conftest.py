from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.sources import TestedSource, duckdb_source, postgresql_source, sqlite_source
from tests.services.postgres import PostgresServer


@pytest.fixture
def sqlite(tmp_path: Path) -> TestedSource:
    return sqlite_source(tmp_path)


@pytest.fixture
def duck(tmp_path: Path) -> TestedSource:
    return duckdb_source(tmp_path)


@pytest.fixture
def postgresql(pg: PostgresServer) -> Iterator[TestedSource]:
    source = postgresql_source(pg)
    yield source
    pg.drop_database(source.url)  # hundreds of them would fill a disk
