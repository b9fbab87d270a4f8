"""The way of a model from its query to its table: first run, later runs, and the seed's own example."""

import pytest

from spark_code.models import merge, target
from spark_code.models.plan import planned
from tests.models.harness import ModelLab, incremental
from tidemark.models.spec import ModelMetadata


def test_the_complete_flow_of_the_seed_runs_as_it_stands(lab: ModelLab) -> None:
    lab.source("id int, name string, email string, at date", (1, "a", "a@x", None))
    handler, state_manager = lab.handler, lab.states
    handler.materialize(
        "my_table",
        "SELECT id, name FROM source",
        "incremental",
        metadata={"incremental": {"strategy": "append", "append": {"filter_column": "id"}}},
    )
    assert lab.rows("my_table") == [{"id": 1, "name": "a"}]
    state_manager.update_processed_value("my_table", 1, "append")
    lab.source("id int, name string, email string, at date", (1, "a", "a@x", None), (2, "b", "b@x", None))
    handler.materialize(
        "my_table",
        "SELECT id, name, email FROM source",
        "incremental",
        metadata={
            "incremental": {
                "strategy": "append",
                "append": {"filter_column": "id"},
                "on_schema_change": "append_new_columns",
            }
        },
    )
    assert lab.rows("my_table") == [{"id": 1, "name": "a", "email": None}, {"id": 2, "name": "b", "email": "b@x"}]
    assert state_manager.get_last_processed_value("my_table") == 2


def test_append_adds_only_what_is_beyond_the_last_value_written(lab: ModelLab) -> None:
    model = {"incremental": incremental("append", filter_column="id")}
    lab.source("id int, name string", (1, "a"), (2, "b"))
    first = lab.run("shop.orders", "SELECT * FROM source", **model)
    assert (first.action, first.rows, first.status) == ("full", {"inserted": 2}, "published")
    lab.source("id int, name string", (1, "a"), (2, "changed"), (3, "c"))
    second = lab.run("shop.orders", "SELECT * FROM source", **model)
    assert (second.action, second.rows) == ("incremental", {"inserted": 1})
    assert [row["name"] for row in lab.rows("shop.orders", "id")] == ["a", "b", "c"]
    before = lab.told("shop.orders")
    third = lab.run("shop.orders", "SELECT * FROM source", **model)
    assert (third.status, third.action) == ("unchanged", "unchanged")
    assert lab.told("shop.orders") == before
    assert lab.platform.lake.reader.branches("shop.orders") == {}


@pytest.mark.parametrize(("small", "few"), [(1 << 30, 1 << 30), (0, 1 << 30), (0, 0)], ids=["small", "large", "many rows"])
def test_merge_replaces_rows_that_differ_and_leaves_the_others_where_they_are(
    lab: ModelLab, monkeypatch: pytest.MonkeyPatch, small: int, few: int
) -> None:
    monkeypatch.setattr(target, "SMALL", small)
    monkeypatch.setattr(merge, "FEW", few)
    model = {"incremental": incremental("merge", unique_key="id", filter_column="at")}
    lab.source("id int, name string, at int", (1, "a", 1), (2, "b", 1), (None, "n", 1))
    lab.run("shop.orders", "SELECT * FROM source", **model)
    lab.source("id int, name string, at int", (1, "A", 2), (2, "b", 1), (3, "c", 2), (None, "N", 2))
    result = lab.run("shop.orders", "SELECT * FROM source", **model)
    assert result.rows == {"inserted": 1, "updated": 2, "unchanged": 1}
    assert {row["id"]: row["name"] for row in lab.rows("shop.orders")} == {1: "A", 2: "b", 3: "c", None: "N"}
    again = lab.run("shop.orders", "SELECT * FROM source", **model)
    assert (again.status, again.rows) == ("unchanged", {"unchanged": 3})


def test_delete_insert_is_one_snapshot(lab: ModelLab) -> None:
    model = {"incremental": incremental("delete_insert", unique_key="day", filter_column="day")}
    lab.source("day int, n int", (1, 1), (2, 1), (2, 2))
    lab.run("shop.days", "SELECT * FROM source", **model)
    before = lab.snapshot("shop.days")
    lab.source("day int, n int", (1, 1), (2, 9), (3, 1))
    result = lab.run("shop.days", "SELECT * FROM source", **model)
    assert result.rows == {"inserted": 2, "deleted": 2}
    assert lab.rows("shop.days") == [{"day": 1, "n": 1}, {"day": 2, "n": 9}, {"day": 3, "n": 1}]
    published = lab.platform.lake.reader.published("shop.days")
    assert published is not None
    assert published.parent_snapshot_id == before
    assert {row["day"]: row["n"] for row in lab.spark.table("lake.shop.days").collect()} == {1: 1, 2: 9, 3: 1}


def test_merge_keeps_columns_that_are_never_updated(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", unique_key=["id", "kind"], filter_column="at", no_update_columns=["born"])}
    lab.source("id int, kind string, at int, born int, v string", (1, "a", 1, 1, "x"), (1, "b", 1, 1, "x"))
    lab.run("shop.t", "SELECT * FROM source", **model)
    lab.source(
        "id int, kind string, at int, born int, v string", (1, "a", 2, 2, "y"), (1, None, 2, 2, "n"), (1, "b", 2, 2, "x")
    )
    assert lab.run("shop.t", "SELECT * FROM source", **model).rows == {"inserted": 1, "updated": 2}
    found = {row["kind"]: (row["born"], row["v"], row["at"]) for row in lab.rows("shop.t")}
    assert found == {"a": (1, "y", 2), "b": (1, "x", 2), None: (2, "n", 2)}


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"where_condition": "day >= @start", "filter_column": "day"}, {1: 1, 2: 9, 3: 1}),
        ({"filter_column": "day"}, {1: 1, 2: 9, 3: 1}),
        ({"where_condition": "day = 2"}, {2: 9}),
    ],
)
def test_delete_insert_replaces_what_a_condition_or_a_range_names(
    lab: ModelLab, options: dict[str, str], rows: dict[int, int]
) -> None:
    model = {"incremental": incremental("delete_insert", **options)}
    lab.source("day int, n int", (1, 1), (2, 1), (2, 2))
    lab.run("shop.days", "SELECT * FROM source", **model)
    lab.source("day int, n int", (1, 7), (2, 9), (3, 1))
    lab.run("shop.days", "SELECT * FROM source", **model)
    assert {row["day"]: row["n"] for row in lab.rows("shop.days")} == rows
    assert len(lab.rows("shop.days")) == len(rows)


def test_a_plan_tells_what_a_run_would_do_and_writes_nothing(lab: ModelLab) -> None:
    model = {"incremental": incremental("merge", "sync_all_columns", unique_key="id", filter_column="at")}
    metadata = ModelMetadata.parse({"materialization": "incremental", **model})
    lab.source("id int, at int, v string, w int", (1, 1, "a", 1))
    assert planned(lab.handler, "shop.t", "SELECT id, at, v FROM source", metadata).action == "full"
    lab.run("shop.t", "SELECT id, at, v FROM source", **model)
    lab.source("id int, at int, v string, w int", (1, 1, "a", 1), (2, 2, "b", 2))
    before = lab.told("shop.t")
    plan = planned(lab.handler, "shop.t", "SELECT id, at, w FROM source", metadata)
    assert (plan.action, plan.rows_expected, plan.refused) == ("incremental", 2, None)
    assert [(step.kind, step.destructive) for step in plan.steps] == [("add", False), ("drop", True)]
    refused = planned(lab.handler, "shop.t", "SELECT id, w FROM source", metadata)
    assert "filter_column" in str(refused.refused)
    assert lab.told("shop.t") == before
    assert lab.platform.lake.reader.branches("shop.t") == {}


def test_a_spark_that_does_not_say_what_it_wrote_is_asked_for_it(lab: ModelLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target.Observation, "get", {})  # as a busy server of Spark Connect answers
    append = incremental("append", "append_new_columns", filter_column="id")
    lab.source("id int, name string", (1, "a"), (2, "b"))
    first = lab.run("shop.orders", "SELECT * FROM source", incremental=append)
    assert first.rows == {"inserted": 2}
    lab.source("id int, name string", (2, "b"), (3, "c"))
    second = lab.run("shop.orders", "SELECT * FROM source", incremental=append)
    assert second.rows == {"inserted": 1}
    assert lab.states.get_last_processed_value("shop.orders") == 3
    lab.source("id int, name string, size int", (4, "d", 1), (5, "e", 2))
    wider = lab.run("shop.orders", "SELECT * FROM source", incremental=append)
    assert wider.rows == {"inserted": 2}
    assert lab.states.get_last_processed_value("shop.orders") == 5
    whole = lab.run("shop.all", "SELECT * FROM source")
    assert whole.rows == {"inserted": 2}
    lab.source("id int, name string, size int", (7, "f", 1))
    whole = lab.run("shop.all", "SELECT * FROM source")
    assert whole.rows == {"inserted": 1}
