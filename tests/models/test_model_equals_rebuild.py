"""However a model got where it is, in batches, with late rows and new columns: it equals one that was made at once."""

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.catalog.harness import SparkForTests
from tests.models.harness import ModelLab, incremental

LOOKBACK = 2
COLUMNS = "id int, at int, v string, e int"
numbers = count()

row = st.tuples(st.integers(1, 5), st.integers(0, LOOKBACK), st.sampled_from(["x", "y", None]))
step = st.tuples(st.lists(row, max_size=4), st.booleans())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, spark: SparkForTests) -> ModelLab:
    return ModelLab.make(tmp_path_factory.mktemp("equals"), spark)


@pytest.mark.parametrize("strategy", ["append", "merge", "delete_insert"])
@settings(max_examples=4, print_blob=True, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
@given(steps=st.lists(step, min_size=2, max_size=4))
def test_batches_late_rows_and_new_columns_give_what_a_rebuild_gives(
    lab: ModelLab, strategy: str, steps: list[tuple[list[tuple[int, int, str | None]], bool]]
) -> None:
    name = f"random.m{next(numbers)}"
    keys = {"append": {}, "merge": {"unique_key": "id"}, "delete_insert": {"unique_key": "id"}}[strategy]
    model = {"incremental": incremental(strategy, "sync_all_columns", filter_column="at", lookback=LOOKBACK, **keys)}
    source: list[tuple[Any, ...]] = [(0, 0, "first", 0)]
    wide, since = False, 0
    for now, (rows, has_extra) in enumerate([([], False), *steps], 10):
        for number, lateness, value in rows:
            # A log gets one more row; a table of things has the newest of each.
            source = source if strategy == "append" else [known for known in source if known[0] != number]
            source.append((number, now - lateness, value, now))
        since = now if has_extra and not wide else since
        wide = has_extra
        query = f"SELECT id, at, v{', e' if wide else ''} FROM source"
        note(f"{strategy}: {query} over {source}")
        lab.source(COLUMNS, *source)
        lab.run(name, query, **model)
    lab.run(f"{name}_rebuilt", query)
    found, rebuilt = lab.rows(name), lab.rows(f"{name}_rebuilt")
    assert plain(found) == plain(rebuilt)
    if wide:
        assert list(lab.columns(name)) == list(lab.columns(f"{name}_rebuilt"))
        # The policy promises NULL in rows that were there before the column, and every row after it.
        assert plain(newer(found, since), "e") == plain(newer(rebuilt, since), "e")
        assert {row["e"] for row in found} <= {row["e"] for row in rebuilt} | {None}


def plain(rows: list[dict[str, Any]], *more: str) -> list[str]:
    return sorted(repr([row[name] for name in ("id", "at", "v", *more)]) for row in rows)


def newer(rows: list[dict[str, Any]], since: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["at"] >= since]
