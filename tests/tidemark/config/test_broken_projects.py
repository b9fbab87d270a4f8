"""Whatever is wrong with a project, `tidemark config check` says where: every finding with its file and its line."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidemark.cli.app import build

pytestmark = pytest.mark.fast

CONFIG, MANIFEST, CARTS, TOTALS = (
    "tidemark.yaml",
    "connectors/shop.yaml",
    "models/silver/carts.sql",
    "models/gold/totals.sql",
)
VALID = {
    CONFIG: """\
store: state
connectors: [connectors/*.yaml]
models: models
connections:
  shop:
    app: sqlite
    id: "1"
    url: sqlite:///shop.db
""",
    MANIFEST: """\
connector: shop
kind: sql
settings: {url: "sqlite:////data/shop.db"}
streams:
  - id: shop.carts
    key: [cart_id]
""",
    CARTS: "SELECT record.cart_id AS cart_id\nFROM bronze.default.shop.shop_carts__latest\n",
    TOTALS: "SELECT count(*) AS n\nFROM silver.carts\n",
}
OTHER = VALID[MANIFEST].replace("connector: shop", "connector: SHOP")
MERGED = """\
/* ---
materialization: incremental
incremental:
  strategy: merge
  merge: {{unique_key: {key}}}
  on_schema_change: {policy}
--- */
SELECT record.cart_id AS cart_id FROM bronze.default.shop.shop_carts__latest
"""


def config(*lines: str) -> str:
    return "\n".join([VALID[CONFIG].rstrip(), *lines, ""])


def manifest(*lines: str) -> str:
    return "\n".join([*lines, VALID[MANIFEST]])


# What is broken → the files that differ from the valid project, and where what is found: file, line, words.
Found = list[tuple[str, int, str]]
# Models that read a broken connector are out as well, and so is what reads them.
READERS: Found = [
    (TOTALS, 2, "it reads silver.carts, and model/silver.carts is broken."),
    (CARTS, 2, "it reads bronze.default.shop.shop_carts__latest, and stream/default/shop is broken."),
]
BROKEN: dict[str, tuple[dict[str, str | None], Found]] = {
    # --- tidemark.yaml
    "a file that is not YAML": ({CONFIG: "store: state\nlake: {a\n"}, [(CONFIG, 3, "this is not YAML")]),
    "an unknown key": ({CONFIG: config("tenant: [a]")}, [(CONFIG, 9, "unknown key. Did you mean 'tenants'?")]),
    "a value of another type": ({CONFIG: config("    watch: often")}, [(CONFIG, 9, "must be a whole number.")]),
    "a key that stands twice": ({CONFIG: config("    app: sqlite")}, [(CONFIG, 9, "this key stands in line 6 already")]),
    "a cron expression of four fields": ({CONFIG: config('    schedule: "0 * * *"')}, [(CONFIG, 9, "this one has 4")]),
    "an app without a pack": (
        {CONFIG: VALID[CONFIG].replace("app: sqlite", "app: sqlit")},
        [(CONFIG, 6, "there is no source pack of this name. Did you mean 'sqlite'?")],
    ),
    "two connections of one id": (
        {CONFIG: config("  twin: {app: sqlite, id: '1', url: 'sqlite:///twin.db'}")},
        [(CONFIG, 7, "the same app and id as 'twin'"), (CONFIG, 9, "the same app and id as 'shop'")],
    ),
    "a variable of a connection that is not set": (
        {CONFIG: VALID[CONFIG].replace('"1"', "${NOBODY_SET_THIS}")},
        [(CONFIG, 7, "the environment variable NOBODY_SET_THIS is not set.")],
    ),
    "a variable of a url that is not set": (
        {CONFIG: VALID[CONFIG].replace("sqlite:///shop.db", "${NOBODY_SET_THIS}")},
        [(CONFIG, 8, "the environment variable NOBODY_SET_THIS is not set.")],
    ),
    "a url of another app": (
        {CONFIG: VALID[CONFIG].replace("sqlite:///shop.db", "duckdb:///shop.db")},
        [(CONFIG, 8, "the url of a sqlite")],
    ),
    "tenants whose tables would be the same": (
        {CONFIG: config("tenants: [default, a-b, a_b]")},
        [(CONFIG, 9, "two are the same, case and punctuation aside")],
    ),
    "a pattern that matches no manifest": (
        {CONFIG: VALID[CONFIG].replace("[connectors/*.yaml]", "[connectors/*.yaml,\n  more/*.yaml]")},
        [(CONFIG, 3, "no file matches more/*.yaml.")],
    ),
    "a manifest that is not there": (
        {CONFIG: VALID[CONFIG].replace("[connectors/*.yaml]", "[connectors/*.yaml,\n  drops.yaml]")},
        [(CONFIG, 3, "no file matches drops.yaml.")],
    ),
    "a folder of models that is not there": (
        {CONFIG: VALID[CONFIG].replace("models: models", "models: modells")},
        [(CONFIG, 3, "there is no folder")],
    ),
    "a folder without a model": ({CARTS: None, TOTALS: None}, [(CONFIG, 3, "no file in it ends in .sql.")]),
    # --- manifests
    "a manifest that is not YAML": (
        {MANIFEST: "connector: shop\nkind: [sql\nstreams: []\n"},
        [(MANIFEST, 3, "this is not YAML"), *READERS],
    ),
    "a manifest without anything in it": (
        {"connectors/drops.yaml": ""},
        [("connectors/drops.yaml", 1, "the file is empty.")],
    ),
    "an unknown key of a manifest": (
        {MANIFEST: manifest("rate-limt: 3")},
        [(MANIFEST, 1, "unknown key. Did you mean 'rate_limit'?"), *READERS],
    ),
    "an unknown kind": (
        {"connectors/drops.yaml": VALID[MANIFEST].replace("shop\n", "drops\n").replace("sql\n", "sqll\n")},
        [("connectors/drops.yaml", 2, "there is no connector of this kind. Did you mean 'sql'?")],
    ),
    "a cron expression of a manifest": (
        {"connectors/drops.yaml": VALID[MANIFEST].replace("shop\n", "drops\n") + 'schedule: "61 * * * *"\n'},
        [("connectors/drops.yaml", 7, "the field 'minute' goes from 0 to 59")],
    ),
    "two manifests of one name": (
        {"connectors/again.yaml": OTHER},
        [
            ("connectors/again.yaml", 1, "shop.yaml has the name 'SHOP' too, case and punctuation aside."),
            (MANIFEST, 1, "again.yaml has the name 'shop' too, case and punctuation aside."),
            *READERS,
        ],
    ),
    "two streams of one id": (
        {"connectors/drops.yaml": VALID[MANIFEST].replace("shop\n", "drops\n") + "  - {id: shop.Carts, key: [id]}\n"},
        [("connectors/drops.yaml", 7, "has the same id as 'shop.carts'")],
    ),
    "a variable of a setting that is not set": (
        {MANIFEST: VALID[MANIFEST].replace('{url: "sqlite:////data/shop.db"}', "\n  url: ${NOBODY_SET_THIS}")},
        [(MANIFEST, 4, "the environment variable NOBODY_SET_THIS is not set.")],
    ),
    "a variable of credentials that is not set": (
        {MANIFEST: VALID[MANIFEST] + "credentials:\n  user: ${HOME}\n  password: ${NOBODY_SET_THIS}\n"},
        [(MANIFEST, 9, "the environment variable NOBODY_SET_THIS is not set.")],
    ),
    "a variable of named credentials that is not set": (
        {CONFIG: config("credentials:", "  erp:", "    token: ${NOBODY_SET_THIS}"), MANIFEST: manifest("credentials: erp")},
        [(CONFIG, 11, "the environment variable NOBODY_SET_THIS is not set.")],
    ),
    "credentials that do not exist": (
        {
            CONFIG: config("credentials: {erp: {user: a}}"),
            "connectors/drops.yaml": VALID[MANIFEST].replace("shop\n", "drops\n") + "credentials: epr\n",
        },
        [
            (CONFIG, 9, "no manifest names these credentials."),
            ("connectors/drops.yaml", 7, "no credentials 'epr'"),
        ],
    ),
    "a setting that the kind does not have": (
        {MANIFEST: VALID[MANIFEST].replace("{url:", "{ulr:")},
        [(MANIFEST, 3, "settings of a sql connector: unknown: ulr (did you mean 'url'?).")],
    ),
    "a password in a manifest": (
        {"connectors/drops.yaml": VALID[MANIFEST].replace("shop\n", "drops\n") + "password: hunter2\n"},
        [("connectors/drops.yaml", 7, "a manifest never holds a secret.")],
    ),
    # --- models
    "an unknown key of a header": (
        {TOTALS: "/* ---\nownr: team:a\n--- */\nSELECT 1 AS n\n"},
        [(TOTALS, 2, "unknown key. Did you mean 'owner'?")],
    ),
    "an unknown policy": (
        {TOTALS: MERGED.format(key="cart_id", policy="append_new_colums")},
        [(TOTALS, 6, "there is no such choice. Did you mean 'append_new_columns'?")],
    ),
    "a query that is not SQL": ({TOTALS: "SELECT 1 AS n,\n  (2 AS m\nFROM x\n"}, [(TOTALS, 3, "this is not Spark SQL")]),
    "a header and a query that are both wrong": (
        {TOTALS: "/* ---\nmaterialization: tabel\n--- */\nSELECT n\nFROM silver.cart\n"},
        [(TOTALS, 2, "Did you mean 'table'?"), (TOTALS, 5, "there is no table silver.cart. Did you mean 'silver.carts'?")],
    ),
    "a table that does not exist": (
        {TOTALS: "SELECT n\nFROM bronze.default.shop.shop_cart__latest\n"},
        [(TOTALS, 2, "there is no table bronze.default.shop.shop_cart__latest. Did you mean")],
    ),
    "an unknown variable": ({TOTALS: "SELECT 1 AS n\nWHERE 1 = @contry\n"}, [(TOTALS, 2, "@contry is no variable.")]),
    "models that read each other in a circle": (
        {CARTS: "SELECT n\nFROM gold.totals\n", TOTALS: "SELECT 1 AS n,\n  2 AS m\nFROM silver.carts\n"},
        [
            (TOTALS, 3, "in a circle: gold.totals reads silver.carts reads gold.totals."),
            (CARTS, 2, "in a circle: silver.carts reads gold.totals reads silver.carts."),
        ],
    ),
    "two models of one name": (
        {"models/gold/more.sql": "/* ---\nname: gold.totals\n--- */\nSELECT 1 AS n\n"},
        [
            ("models/gold/more.sql", 2, "totals.sql has the name 'gold.totals' too."),
            (TOTALS, 1, "more.sql has the name 'gold.totals' too."),
        ],
    ),
    "a broken model that another one reads": (
        {CARTS: "SELECT\n"},
        [(CARTS, 1, "this selects no column."), (TOTALS, 2, "it reads silver.carts, and model/silver.carts is broken.")],
    ),
    "a header without its query": (
        {"models/gold/lost.yaml": "materialization: view\n"},
        [("models/gold/lost.yaml", 1, "there is no lost.sql next to it.")],
    ),
    "a key that the query does not have": (
        {TOTALS: MERGED.format(key="card_id", policy="fail")},
        [(TOTALS, 5, "the query has no column 'card_id'. Did you mean 'cart_id'?")],
    ),
    "a check that looks into a table that does not exist": (
        {TOTALS: "/* ---\nchecks:\n  - relationships: {column: n, to: silver.cart, field: n}\n--- */\nSELECT 1 AS n\n"},
        [(TOTALS, 3, "there is no table silver.cart. Did you mean 'silver.carts'?")],
    ),
    # --- all of them
    "one of each": (
        {CONFIG: config("email: {host: h}"), "connectors/drops.yaml": "kind: sql\n", TOTALS: "SELECT 1 +\n"},
        [
            (CONFIG, 9, "this key is missing. The address mails come from."),
            (CONFIG, 9, "this key is missing. The addresses mails go to."),
            ("connectors/drops.yaml", 1, "this key is missing. The connector's id in state and in the lake."),
            ("connectors/drops.yaml", 1, "this key is missing. What is read."),
            (TOTALS, 1, "this is not Spark SQL"),
        ],
    ),
}


def write_project(folder: Path, changed: dict[str, str | None]) -> None:
    for name, text in {**VALID, **changed}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    (folder / "models").mkdir(exist_ok=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMARK_CONFIG", raising=False)
    monkeypatch.delenv("NOBODY_SET_THIS", raising=False)
    return tmp_path


def check(*options: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(build(), ["config", "check", "--json", *options])
    return done.exit_code, json.loads(done.stdout)


def place(folder: Path, finding: dict[str, Any]) -> tuple[str, int]:
    return finding["file"].removeprefix(f"{folder}/"), finding["line"]


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_with_its_file_and_its_line(folder: Path, name: str) -> None:
    changed, expected = BROKEN[name]
    write_project(folder, changed)
    code, findings = check()
    assert code == 2
    assert [place(folder, each) for each in findings] == [(file, line) for file, line, _ in expected]
    for finding, (_, _, words) in zip(findings, expected, strict=True):
        assert words in finding["message"]
    assert "hunter2" not in json.dumps(findings)


def test_a_valid_project_has_no_findings(folder: Path) -> None:
    write_project(folder, {})
    assert check() == (0, [])
    done = CliRunner().invoke(build(), ["config", "check"])
    assert done.stdout == "tidemark.yaml: ok, 1 connections, 1 connectors, 2 models\n"


def test_people_get_a_line_for_every_finding(folder: Path) -> None:
    write_project(folder, {TOTALS: "SELECT n\nFROM silver.cart\n"})
    done = CliRunner().invoke(build(), ["config", "check"])
    assert done.exit_code == 2
    assert done.stdout.startswith(f"{folder}/{TOTALS}:2: there is no table silver.cart. Did you mean 'silver.carts'?")


def test_a_machine_without_the_secrets_can_check_all_the_rest(folder: Path) -> None:
    unset = VALID[CONFIG].replace("sqlite:///shop.db", "${NOBODY_SET_THIS}")
    credentials = "credentials: {user: '${NOBODY_SET_THIS}', password: '${NOBODY_SET_THIS}'}\n"
    write_project(folder, {CONFIG: unset, MANIFEST: VALID[MANIFEST] + credentials})
    assert [place(folder, each) for each in check()[1]] == [(CONFIG, 8), (MANIFEST, 7), (MANIFEST, 7)]
    assert check("--no-variables") == (0, [])


def test_what_only_looks_superfluous_is_a_warning(folder: Path) -> None:
    write_project(folder, {CONFIG: VALID[CONFIG].replace("models: models", "models: {folder: models, external: [a.*]}")})
    code, (finding,) = check()
    assert code == 0
    assert (finding["line"], finding["severity"], finding["key"]) == (3, "warning", "models.external[0]")


def test_what_is_out_because_of_another_names_it(folder: Path) -> None:
    write_project(folder, {CARTS: "SELECT\n"})
    _, findings = check()
    assert [each["caused_by"] for each in findings] == [None, "model/silver.carts"]
