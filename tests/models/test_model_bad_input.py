"""Queries, options, keys, tables and states that are not as they should be: a named error, and nothing is written."""

import json
from uuid import uuid4

import pytest

from spark_code.models.restore import backfill, restore
from spark_code.models.run import ModelRun
from tests.models.harness import ModelLab, incremental
from tidemark.errors import (
    ChecksFailed,
    ConfigError,
    DuplicateKeys,
    LostRace,
    ModelStateUnreadable,
    NotRestorable,
    QueryInvalid,
    RunInProgress,
    SchemaChangeRefused,
    UsageError,
)
from tidemark.models.spec import ModelMetadata

APPEND = {"incremental": incremental("append", filter_column="at")}
MERGE = {"incremental": incremental("merge", "sync_all_columns", unique_key="id", filter_column="at")}
COLUMNS = "id int, at int, v string"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC id FROM source", "its query"),
        ("SELECT id FROM nowhere", "its query reads nowhere, which is not there. Ingest"),
        ("SELECT id FROM lake.bronze.a.b.c", r"its query reads lake\.bronze\.a\.b\.c, which is not there"),
        ("SELECT nothing FROM source", "cannot be read: .*nothing"),
        ("SELECT id, at, v AS ID FROM source", "columns of the same name: id, ID|columns of the same name: ID, id"),
        ("SELECT id, v FROM source", "no column at, which filter_column names"),
        ("SELECT id, at, NULL AS n FROM source", "n: a column of a table cannot be void; cast it"),
        ("SELECT id, array(at) AS at FROM source", "the column at is list<int>, which has no order"),
        ("SELECT id, at FROM source WHERE at > @since", "@since is no variable"),
    ],
)
def test_a_query_that_cannot_be_a_table_is_named_before_anything_is_written(lab: ModelLab, sql: str, words: str) -> None:
    lab.source(COLUMNS, (1, 1, "a"))
    lab.run("shop.t", "SELECT * FROM source", **APPEND)
    before = lab.told("shop.t")
    with pytest.raises(QueryInvalid, match=f"shop\\.t: .*{words}"):
        lab.run("shop.t", sql, **APPEND)
    assert lab.told("shop.t") == before
    assert lab.last_run("shop.t").status == "failed"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"strategy": "mrege"}, "Did you mean 'merge'.*Allowed: append, merge, delete_insert"),
        ({"strategy": "append", "on_schema_change": "ignor"}, "Did you mean 'ignore'.*Allowed: fail, ignore,"),
        ({"strategy": "merge"}, "the strategy merge needs its options"),
        ({"strategy": "merge", "merge": {}}, "unique_key: this key is missing"),
        ({"strategy": "append", "append": {"look_back": 1}}, "unknown key. Did you mean 'lookback'"),
        ({"strategy": "append", "append": {"lookback": 1}}, "Name it"),
        ({"strategy": "append", "merge": {"unique_key": "id"}}, "there are options of merge"),
        ({"strategy": "delete_insert", "delete_insert": {}}, "what is to be deleted"),
        ({"strategy": "append", "on_schema_change": "full_incremental_refresh"}, "needs parameters"),
    ],
)
def test_an_unknown_policy_strategy_or_option_lists_what_is_allowed(metadata: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ModelMetadata.parse({"materialization": "incremental", "incremental": metadata})


def test_rows_that_share_a_key_are_an_error_with_examples_unless_it_is_said_which_wins(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a"), (2, 1, "b"))
    lab.run("shop.t", "SELECT * FROM source", **MERGE)
    lab.source(COLUMNS, (1, 2, "x"), (1, 3, "y"), (None, 2, "n"), (None, 3, "m"))
    before = lab.told("shop.t")
    with pytest.raises(DuplicateKeys, match=r'shop\.t: new rows share a key \(id\): .*\{"id":1\} in 2 rows'):
        lab.run("shop.t", "SELECT * FROM source", **MERGE)
    assert lab.told("shop.t") == before
    deduped = {"incremental": incremental("merge", unique_key="id", filter_column="at", dedupe_by="at")}
    lab.run("shop.t", "SELECT * FROM source", **deduped)
    assert {row["id"]: row["v"] for row in lab.rows("shop.t")} == {1: "y", None: "m"}  # other options: all anew
    lab.source(COLUMNS, (1, 4, "q"), (1, 5, "p"))
    lab.run("shop.t", "SELECT * FROM source", **deduped)
    assert {row["id"]: row["v"] for row in lab.rows("shop.t")} == {1: "p", None: "m"}


def test_a_start_that_is_no_value_of_the_filter_column_is_named(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a"))
    with pytest.raises(ConfigError, match=r"shop\.t: start_value does not go with at \(int\)"):
        lab.run("shop.t", "SELECT * FROM source", incremental=incremental("append", filter_column="at", start_value="soon"))
    model = {"incremental": incremental("append", filter_column="at", lookback="3 days")}
    lab.run("shop.t", "SELECT * FROM source", **model)
    with pytest.raises(ConfigError, match="the last value or the lookback does not go with at"):
        lab.run("shop.t", "SELECT * FROM source", **model)


def test_a_column_that_is_key_or_filter_is_never_dropped(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a"))
    lab.run("shop.t", "SELECT * FROM source", **MERGE)
    before = lab.told("shop.t")
    with pytest.raises(QueryInvalid, match="no column id, which unique_key names"):
        lab.run("shop.t", "SELECT at, v FROM source", **MERGE)
    lab.spark.sql("ALTER TABLE lake.shop.t ADD PARTITION FIELD v")
    with pytest.raises(SchemaChangeRefused, match="v, and sync_all_columns would drop it, but it is a partition column"):
        lab.run("shop.t", "SELECT id, at FROM source", **MERGE)
    assert lab.told("shop.t") == before


def test_a_table_dropped_by_hand_is_made_anew(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a"), (2, 2, "b"))
    lab.run("shop.t", "SELECT * FROM source", **APPEND)
    lab.spark.sql("DROP TABLE lake.shop.t")
    result = lab.run("shop.t", "SELECT * FROM source", **APPEND)
    assert (result.action, result.reason, result.rows) == ("full", "the table is gone", {"inserted": 2})
    assert len(lab.rows("shop.t")) == 2


def test_a_table_changed_by_hand_is_compared_as_it_is(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a"))
    lab.run("shop.t", "SELECT * FROM source", **MERGE)
    lab.spark.sql("ALTER TABLE lake.shop.t ADD COLUMN extra int")
    lab.spark.sql("INSERT INTO lake.shop.t VALUES (9, 1, 'by hand', 7)")
    lab.source(COLUMNS, (1, 1, "a"), (2, 2, "b"))
    result = lab.run("shop.t", "SELECT * FROM source", **MERGE)
    assert any("extra" in warning and "is dropped" in warning for warning in result.warnings)
    assert [row["id"] for row in lab.rows("shop.t", "id")] == [1, 2, 9]
    lab.spark.sql("INSERT INTO lake.shop.t VALUES (2, 2, 'twice')")
    before = lab.told("shop.t")
    lab.source(COLUMNS, (2, 3, "c"))
    with pytest.raises(DuplicateKeys, match="its table has several rows of one key"):
        lab.run("shop.t", "SELECT * FROM source", **MERGE)
    assert lab.told("shop.t") == before


def test_a_lost_state_means_a_full_load_into_the_same_table(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a"))
    lab.run("shop.t", "SELECT * FROM source", **APPEND)
    lab.states.reset("shop.t", "test")
    lab.source(COLUMNS, (1, 1, "A"), (2, 2, "b"))
    result = lab.run("shop.t", "SELECT * FROM source", **APPEND)
    assert (result.action, result.reason) == ("full", "no state")
    assert [row["v"] for row in lab.rows("shop.t", "id")] == ["A", "b"]


def test_a_state_of_another_version_is_named_and_a_full_run_gets_past_it(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a"))
    lab.run("shop.t", "SELECT * FROM source", **APPEND)
    marks = lab.platform.control.marks
    version = lab.states.version("shop.t")
    marks.move("model/shop.t", version, json.dumps({"form": 99}), snapshot=None, run_id=None, actor="test", reason="test")
    snapshot = lab.snapshot("shop.t")
    with pytest.raises(ModelStateUnreadable, match=r"shop\.t: its state was written by another version"):
        lab.run("shop.t", "SELECT * FROM source", **APPEND)
    assert lab.snapshot("shop.t") == snapshot
    lab.run("shop.t", "SELECT * FROM source", full=True, **APPEND)
    assert lab.states.get_last_processed_value("shop.t") == 1


def test_of_two_runs_of_one_model_one_is_told(lab: ModelLab) -> None:
    lab.source(COLUMNS, (1, 1, "a"))
    lab.run("shop.t", "SELECT * FROM source", **APPEND)
    first = ModelRun(lab.handler.adapter, "shop.t", str(uuid4()))
    first.begin()
    try:
        with pytest.raises(RunInProgress, match=r"model/shop\.t"):
            lab.run("shop.t", "SELECT * FROM source", **APPEND)
        first.stage()
        lab.spark.sql("INSERT INTO lake.shop.t VALUES (5, 5, 'meanwhile')")
        state = lab.state("shop.t")
        assert state is not None
        with pytest.raises(LostRace, match="another run published first"):
            first.publish_staged(state)
    finally:
        first.end()
    assert [row["id"] for row in lab.rows("shop.t", "id")] == [1, 5]
    assert lab.platform.lake.reader.branches("shop.t") == {}


def test_a_blocking_check_keeps_rows_and_columns_from_readers(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", "append_new_columns", filter_column="at"), "checks": [{"not_null": "v"}]}
    lab.source(COLUMNS, (1, 1, "a"))
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    before = lab.told("shop.t")
    lab.source(COLUMNS, (1, 1, "a"), (2, 2, None))
    with pytest.raises(ChecksFailed, match=r"shop\.t: nothing was published.*not_null__v"):
        lab.run("shop.t", "SELECT id, at, v, 1 AS x FROM source", **model)
    assert lab.told("shop.t") == before
    told = model | {"checks": [{"not_null": "v", "blocking": False}]}
    result = lab.run("shop.t", "SELECT id, at, v, 1 AS x FROM source", **told)
    assert [check.passed for check in result.checks] == [False]
    assert len(lab.rows("shop.t")) == 2


def test_a_dropped_column_comes_back_with_its_values(lab: ModelLab) -> None:
    for strategy in ("append", "merge"):
        name = f"shop.{strategy}"
        key = {"unique_key": "id"} if strategy == "merge" else {}
        model = {"incremental": incremental(strategy, "sync_all_columns", filter_column="at", **key)}
        lab.source(COLUMNS, (1, 1, "a"), (2, 1, "b"))
        lab.run(name, "SELECT * FROM source", **model)
        lab.source(COLUMNS, (1, 1, "a"), (2, 2, "B"), (3, 2, "c"))
        lab.run(name, "SELECT id, at FROM source", **model)
        assert list(lab.columns(name)) == ["id", "at"]
        metadata = ModelMetadata.parse({"materialization": "incremental", **model})
        restore(lab.handler, name, "V", metadata)
        found = {(row["id"], row["at"]): row["v"] for row in lab.rows(name)}
        expected = {(1, 1): "a", (2, 2): "b", (3, 2): None} if strategy == "merge" else {
            (1, 1): "a", (2, 1): "b", (2, 2): None, (3, 2): None}  # fmt: skip
        assert found == expected
        assert [row.asDict()["v"] for row in lab.spark.table(f"lake.{name}").orderBy("id", "at").collect()] == [
            expected[key] for key in sorted(expected)
        ]
        with pytest.raises(UsageError, match="no dropped column 'v' is recorded"):
            restore(lab.handler, name, "v", metadata)


def test_a_column_that_cannot_be_restored_in_place_is_named_with_where_its_values_are(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", "sync_all_columns", filter_column="at")}
    lab.source("id int, at int, n bigint, v string", (1, 1, 5, "a"))
    lab.run("shop.t", "SELECT * FROM source", **model)
    lab.run("shop.t", "SELECT id, at, n FROM source", **model)
    lab.run("shop.t", "SELECT id, at, CAST(n AS int) AS n FROM source", **model)
    with pytest.raises(NotRestorable, match="VERSION AS OF"):
        restore(lab.handler, "shop.t", "v", ModelMetadata.parse({"materialization": "incremental", **model}))
    assert list(lab.columns("shop.t")) == ["id", "at", "n"]


def test_new_columns_are_filled_for_the_keys_or_the_range_that_is_asked_for(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", "append_new_columns", unique_key="id", filter_column="at")}
    lab.source(COLUMNS, *[(number, number, f"v{number}") for number in range(1, 6)])
    lab.run("shop.t", "SELECT id, at FROM source", **model)
    sql = "SELECT id, at, v FROM source"
    lab.run("shop.t", sql, **model)
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    assert [row["v"] for row in lab.rows("shop.t", "id")] == [None, None, None, None, "v5"]
    assert backfill(lab.handler, "shop.t", sql, metadata, ["v"], keys=[{"id": 1}]).rows == {"updated": 1}
    assert backfill(lab.handler, "shop.t", sql, metadata, ["v"], between=(2, 3)).rows == {"updated": 2}
    assert [row["v"] for row in lab.rows("shop.t", "id")] == ["v1", "v2", "v3", None, "v5"]
    assert backfill(lab.handler, "shop.t", sql, metadata, ["v"], between=(2, 3)).status == "unchanged"
