"""A folder of models: names, headers, variables, and what is wrong told with file and line."""

from pathlib import Path

import pytest

from tests.models.folder import CARTS, Folder
from tidemark.config import load_config
from tidemark.errors import ConfigError
from tidemark.models.graph import load_project
from tidemark.models.spec import ModelMetadata

pytestmark = pytest.mark.fast

HEADER = """\
/* ---
description: Carts as they are now
owner: team:shop
materialization: incremental
schedule: "*/15 * * * *"
incremental:
  strategy: merge
  merge: {unique_key: cart_id, filter_column: changed, lookback: 3 days}
  on_schema_change: append_new_columns
checks:
  - unique: cart_id
  - accepted_values: {column: state, values: [open, done]}
    blocking: false
--- */
"""


def told(folder: Folder) -> str:
    with pytest.raises(ConfigError) as wrong:
        folder.load()
    return str(wrong.value).replace(f"{folder.path}/", "")


# --- what there is ---------------------------------------------------------------------------------------------------


def test_a_file_is_a_model_by_its_first_folder_and_its_name(folder: Folder) -> None:
    folder.write("silver/shop/carts.sql", f"SELECT record.cart_id FROM {CARTS}")
    folder.write("gold/per_day.sql", "/* ---\nname: reports.daily\n--- */\nSELECT cart_id FROM silver.carts;")
    project = folder.load()
    assert list(project.models) == ["silver.carts", "reports.daily"]
    daily = project.models["reports.daily"]
    assert (daily.schema, daily.table, daily.references) == ("reports", "daily", ("silver.carts",))
    assert daily.sql == "SELECT cart_id FROM lake.silver.carts"


def test_a_header_says_all_that_a_file_beside_can_say(folder: Folder) -> None:
    query = f"SELECT record.cart_id, record.changed, 'open' AS state FROM {CARTS}"
    folder.write("silver/one.sql", HEADER + query)
    folder.write("silver/other.sql", query)
    folder.write("silver/other.yaml", HEADER.removeprefix("/* ---\n").removesuffix("--- */\n"))
    one, other = folder.load().models.values()
    assert one.metadata == other.metadata
    assert isinstance(one.metadata, ModelMetadata)
    assert one.metadata.schedule == "*/15 * * * *"
    assert one.metadata.incremental is not None
    assert one.metadata.incremental.options.key_columns == ("cart_id",)
    assert one.policy == "append_new_columns"
    assert [(each.name, each.blocking) for each in one.metadata.checks] == [
        ("unique__cart_id", True),
        ("accepted_values__state", False),
    ]
    assert one.sql == other.sql == query.replace(CARTS, f"lake.{CARTS}")


def test_a_query_without_a_header_is_a_table(folder: Folder) -> None:
    folder.write("silver/a.sql", "-- a comment is no header\nSELECT 1 AS one")
    model = folder.load().models["silver.a"]
    assert (model.metadata.materialization, model.policy, model.references) == ("table", None, ())


def test_no_folder_in_the_configuration_means_no_models(folder: Folder) -> None:
    folder.write("silver/a.sql", "no SQL at all")
    folder.configure()
    assert not folder.load().models


def test_the_demo_has_three_models_over_bronze() -> None:
    project = load_project(load_config(Path(__file__).parents[2] / "tidemark.yaml"))
    assert list(project.models) == ["silver.carts", "silver.delivery_lines", "gold.deliveries"]
    assert "'EUR' AS currency" in project.models["silver.delivery_lines"].sql
    assert all(model.metadata.checks and model.metadata.description for model in project.models.values())


# --- variables -------------------------------------------------------------------------------------------------------


def test_a_model_s_own_variables_win_over_those_of_all(folder: Folder) -> None:
    folder.configure(models={"folder": "models", "variables": {"country": "DE", "states": ["open", "done"]}})
    folder.write("silver/a.sql", "SELECT @country AS c WHERE 'open' IN @states")
    folder.write("silver/b.sql", "/* ---\nvariables: {country: FR}\n--- */\nSELECT @country AS c")
    found = {name: model.sql for name, model in folder.load().models.items()}
    assert found == {"silver.a": "SELECT 'DE' AS c WHERE 'open' IN ('open', 'done')", "silver.b": "SELECT 'FR' AS c"}


def test_variables_of_chunks_stay_for_the_run(folder: Folder) -> None:
    folder.write(
        "silver/a.sql",
        """\
        /* ---
        materialization: incremental
        incremental: {strategy: append, append: {filter_column: at}, on_schema_change: full_incremental_refresh}
        full_incremental_refresh:
          parameters: [{name: "@from_day", column: at, start_value: 2026-01-01, end_value: max(at), step: 1 month}]
        --- */
        SELECT emitted_at AS at FROM bronze.default.shop.shop_carts WHERE emitted_at >= @from_day
        """,
    )
    assert folder.load().models["silver.a"].sql.endswith("WHERE emitted_at >= @from_day")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"@country": "DE"}, "names of variables are letters, digits and '_', without the @"),
        ({"country": {"of": "DE"}}, "country must be text, a number, true or false, or a list of these"),
    ],
)
def test_variables_that_no_query_could_hold_are_told(folder: Folder, variables: dict[str, object], words: str) -> None:
    folder.configure(models={"folder": "models", "variables": variables})
    assert words in told(folder)


# --- what is wrong ---------------------------------------------------------------------------------------------------


def test_an_unknown_key_is_told_with_its_line_what_is_allowed_and_the_nearest(folder: Folder) -> None:
    folder.write("silver/a.sql", "\n" + HEADER.replace("lookback", "look_back") + "SELECT 1 AS cart_id, 2 AS changed")
    assert told(folder).startswith(
        "models/silver/a.sql:9: incremental.merge.look_back: unknown key. Did you mean 'lookback'? "
        "Allowed: filter_column, start_value, lookback, unique_key"
    )


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.sql": "SELECT 1 AS a"}, "models/a.sql:1: it lies in no folder. The first folder is the schema"),
        ({"silver/a-b.sql": "SELECT 1 AS a"}, "models/silver/a-b.sql:1: a model is called schema.table"),
        ({"Silver/a.sql": "SELECT 1 AS a"}, "models/Silver/a.sql:1: a model is called schema.table"),
        ({"bronze/a.sql": "SELECT 1 AS a"}, "models/bronze/a.sql:1: the schema bronze is Tidemark's own"),
        ({"s/a.sql": "/* ---\nname: a\n--- */ SELECT 1 AS a"}, "models/s/a.sql:2: name: a model is called schema.table"),
        ({"s/a.sql": "/* ---\nname: s.b\n--- */ SELECT 1 AS a", "s/b.sql": "SELECT 1 AS b"}, "s/b.sql has the name 's.b'"),
        ({"s/a.sql": "/* ---\ntags: [x]\nSELECT 1 AS a"}, "models/s/a.sql:1: the header has no end"),
        ({"s/a.sql": "/* ---\n--- */ SELECT 1 AS a"}, "models/s/a.sql:1: the file is empty. The least it says"),
        ({"s/a.sql": "/* ---\n\ttags: x\n--- */ SELECT 1 AS a"}, "models/s/a.sql:2: a tab"),
        ({"s/a.sql": HEADER + "SELECT 1 AS a", "s/a.yaml": "tags: [x]"}, "it has a header, and there is a.yaml next to it"),
        ({"s/a.sql": "SELECT 1 AS a", "s/a.yaml": "tags: [x]", "s/a.yml": "tags: [y]"}, "there are a.yaml and a.yml"),
        ({"s/b.yaml": "tags: [x]"}, "models/s/b.yaml:1: there is no b.sql next to it"),
        ({"s/a.sql": "SELECT 1 AS a", "s/a.yaml": "owner: me"}, "models/s/a.yaml:1: owner: must be a team, team:name, or"),
        ({"s/a.sql": "SELECT 1 AS a", "s/a.yaml": "tags: [a b]"}, "models/s/a.yaml:1: tags: must be words"),
        ({"s/a.sql": "SELECT 1 AS a", "s/a.yaml": "schedule: hourly"}, "models/s/a.yaml:1: schedule: a schedule has five"),
        ({"s/a.sql": "SELECT 1 AS a", "s/a.yaml": "tags: [x]\ntags: [y]"}, "models/s/a.yaml:2: tags: this key stands in"),
        ({"s/a.sql": "/* ---\ntags: [x]\n--- */\n\nSELECT 1"}, "models/s/a.sql:5: name this column: 1 AS …."),
        ({"s/a.sql": "/* ---\ntags: [x]\n--- */\nSELECT @b AS a"}, "models/s/a.sql:4: @b is no variable"),
        ({"s/a.sql": "DELETE FROM s.b"}, "models/s/a.sql:1: this begins with DELETE"),
        (
            {"s/a.sql": "SELECT 1 AS a", "s/a.yaml": "checks:\n- unique: a\n- unique: [a]"},
            "models/s/a.yaml:1: checks: two are called unique__a",
        ),
        (
            {"s/a.sql": "SELECT 1 AS a", "s/a.yaml": "checks:\n- unique: a\n  not_null: a"},
            "models/s/a.yaml:2: checks[0]: has unique and not_null; a check is one of unique, not_null, accepted_values",
        ),
        (
            {"s/a.sql": "SELECT 1 AS a", "s/a.yaml": "checks:\n- uniqe: a"},
            "models/s/a.yaml:2: checks[0].uniqe: unknown key. Did you mean 'unique'?",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(folder: Folder, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        folder.write(name, text)
    assert words in told(folder)


def test_all_that_is_wrong_is_told_at_once(folder: Folder) -> None:
    folder.write("s/a.sql", "SELECT FROM")
    folder.write("s/b.sql", "SELECT 1")
    folder.write("s/c.sql", "SELECT 1 AS fine")
    assert len(told(folder).splitlines()) == 2


def test_a_folder_that_is_not_there_is_told(folder: Folder) -> None:
    folder.configure(models="modells")
    assert told(folder).startswith("tidemark.yaml:3: models.folder: there is no folder modells.")
