"""A refresh in chunks makes the same table as one that is not: above all, the same row of a key wins."""

from typing import Any

import pytest

from tests.models.harness import ModelLab, incremental

COLUMNS = "id int, at int, rank int, v string"


@pytest.mark.parametrize(("winner", "v"), [("rank", "high"), ("rank asc", "low"), ("at", "late"), ("at asc", "high")])
def test_which_row_of_a_key_wins_does_not_depend_on_its_chunk(lab: ModelLab, winner: str, v: str) -> None:
    rows = [(1, 1, 9, "high"), (1, 2, None, "null"), (1, 3, 1, "low"), (1, 4, 5, "late"), (2, 4, 1, "other")]
    lab.source(COLUMNS, *rows)
    found: dict[str, Any] = {}
    for policy in ("full_refresh", "full_incremental_refresh"):
        options = {"unique_key": "id", "filter_column": "at", "dedupe_by": winner}
        chunks = [{"name": "from", "column": "at", "start_value": 1, "end_value": "max(at)", "step": 1}]
        model = {
            "incremental": incremental("merge", policy, **options),
            "full_incremental_refresh": {"parameters": chunks},
        }
        lab.run(f"shop.{policy}", "SELECT id, at, rank FROM source", **model)
        result = lab.run(f"shop.{policy}", "SELECT id, at, rank, v FROM source", **model)
        assert result.action == "rebuild"
        found[policy] = lab.rows(f"shop.{policy}", "id")
    assert found["full_incremental_refresh"] == found["full_refresh"]
    assert [row["v"] for row in found["full_refresh"]] == [v, "other"]


def test_rows_that_nothing_tells_apart_win_by_their_content_in_any_chunk(lab: ModelLab) -> None:
    options = {"unique_key": "id", "filter_column": "at", "dedupe_by": "rank"}
    chunks = [{"name": "from", "column": "at", "start_value": 1, "end_value": "max(at)", "step": 1}]
    model = {
        "incremental": incremental("merge", "full_incremental_refresh", **options),
        "full_incremental_refresh": {"parameters": chunks},
    }
    wins = set()
    for name, rows in {"one": [(1, 1, 5, "a"), (1, 2, 5, "b")], "two": [(1, 2, 5, "a"), (1, 1, 5, "b")]}.items():
        lab.source(COLUMNS, *rows)
        lab.run(f"shop.{name}", "SELECT id, at, rank FROM source", **model)
        lab.run(f"shop.{name}", "SELECT id, rank, v, at FROM source", **model)
        wins.add(lab.rows(f"shop.{name}")[0]["v"])
    assert wins == {"b"}
