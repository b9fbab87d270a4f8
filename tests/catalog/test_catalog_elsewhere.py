"""The same catalogue on S3, and with the control database and the lake's catalogue on PostgreSQL."""

from pathlib import Path

import pytest

from tests.catalog.harness import Catalog, SparkForTests, SqliteSource, in_order
from tests.services.postgres import PostgresServer
from tests.services.s3 import S3Server
from tidemark.errors import TooManyRemoved

pytestmark = pytest.mark.service

TABLES = ("CREATE TABLE still (a INTEGER, b INTEGER)", "CREATE TABLE changing (a INTEGER)", "CREATE TABLE going (a INTEGER)")
CHANGE = ("ALTER TABLE changing ADD COLUMN b TEXT", "DROP TABLE going", "CREATE TABLE coming (a INTEGER, b TEXT)")


@pytest.fixture(params=["folder + PostgreSQL", "S3 + SQLite", "S3 + PostgreSQL"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkForTests) -> Catalog:
    settings: dict[str, object] = {}
    store, control = request.param.split(" + ")
    if store == "S3":
        s3: S3Server = request.getfixturevalue("s3")
        url = f"s3://{s3.new_bucket()}/tidemark"
        settings["store"] = {"url": url, "endpoint": s3.endpoint, "region": s3.region}
        settings["control"] = f"sqlite:///{tmp_path}/control/control.db"
    if control == "PostgreSQL":
        pg: PostgresServer = request.getfixturevalue("pg")
        settings["control"] = pg.new_database()
    source = SqliteSource(tmp_path / "shop.db")
    source.execute(*TABLES)
    return Catalog.make(tmp_path, spark, source, {"app": "sqlite", "url": source.url}, **settings)


def test_runs_are_the_same_wherever_the_state_is_kept(elsewhere: Catalog, tmp_path: Path, spark: SparkForTests) -> None:
    elsewhere.run()
    assert elsewhere.run().status == "unchanged"
    elsewhere.source.execute(*CHANGE)
    record = elsewhere.run()
    assert {k: v for k, v in record.detail["labels"].items() if v} == {
        "CREATED": 1, "UPDATED": 1, "NO CHANGE": 1, "REMOVED": 1,
    }  # fmt: skip
    plain = Catalog.make(tmp_path / "plain", spark, elsewhere.source, {"app": "sqlite", "url": elsewhere.source.url})
    plain.run()
    assert elsewhere.unlabelled() == plain.unlabelled()
    assert elsewhere.mirror() == in_order(elsewhere.state())
    assert elsewhere.deleted_names(record.run_id) == ["going", "a"]

    before = elsewhere.snapshot_of_everything()
    elsewhere.source.execute("DROP TABLE still", "DROP TABLE changing", "DROP TABLE coming")
    with pytest.raises(TooManyRemoved):
        elsewhere.run()
    assert elsewhere.snapshot_of_everything() == before
