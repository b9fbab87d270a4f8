import re
from pathlib import Path

import pytest

from tidemark.config import load_config
from tidemark.errors import ConfigError

pytestmark = pytest.mark.fast

SECRET = "hunter2"


def errors(load, text: str) -> list[str]:
    with pytest.raises(ConfigError) as wrong:
        load(text)
    assert wrong.value.exit_code == 2
    assert SECRET not in str(wrong.value)
    return str(wrong.value).split("\n")


def error(load, text: str) -> str:
    found = errors(load, text)
    assert len(found) == 1, found
    return found[0]


def test_an_unknown_key_names_file_line_nearest_match_and_all_that_are_allowed(load, shop):
    told = error(load, shop + "    incremental-extracton: true\n")
    assert told.startswith(
        "tidemark.yaml:7: connections.shop.incremental-extracton: unknown key. Did you mean 'incremental-extraction'? "
        "Allowed: app, id, url, include, exclude, schedule, upkeep, watch, incremental-extraction, column-batch-size,"
    )
    assert "(name)" not in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("store: x\nstor: y\n", "tidemark.yaml:2: stor: unknown key. Did you mean 'store'? Allowed: store, control,"),
        ("store: x\npath: y\n", "tidemark.yaml:2: path: unknown key. Allowed: store, control, spark, lake,"),
        ("store:\n  url: x\n  endpont: y\n", "tidemark.yaml:3: store.endpont: unknown key. Did you mean 'endpoint'?"),
        ("store: x\nspark: {mster: y}\n", "tidemark.yaml:2: spark.mster: unknown key. Did you mean 'master'? Allowed"),
        ("store: x\nemail: {host: h, from: a@b, to: [a@b], sender: c@d}\n", "tidemark.yaml:2: email.sender: unknown"),
    ],
)
def test_an_unknown_key_is_named_in_every_section(load, text, told):
    assert error(load, text).startswith(told)


def test_keys_are_written_with_hyphens(load, shop):
    told = error(load, shop + "    copy_workers: 3\n")
    assert "connections.shop.copy_workers: unknown key. Did you mean 'copy-workers'?" in told


@pytest.mark.parametrize("key", ["name", "origin"])
def test_what_the_loader_gives_cannot_be_written(load, shop, key):
    assert f"connections.shop.{key}: unknown key" in error(load, shop + f"    {key}: other\n")
    config = load(shop + f'    "({key})": other\n')
    assert config.connection("shop").name == "shop"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("column-batch-size: many", "column-batch-size: must be a whole number."),
        ("column-batch-size: 1.5", "column-batch-size: must be a whole number."),
        ("column-batch-size: true", "column-batch-size: must be a whole number."),
        ("column-batch-size: [1]", "column-batch-size: must be a whole number."),
        ("column-batch-size: 0", "column-batch-size: must be at least 1."),
        ("column-chunk-size: -1", "column-chunk-size: must be at least 1."),
        ("copy-workers: 0", "copy-workers: must be at least 1."),
        ("prepone-marker-hours: -3", "prepone-marker-hours: must be at least 0."),
        ("max-removed-percent: 101", "max-removed-percent: must be at most 100."),
        ("incremental-extraction: 1", "incremental-extraction: must be true or false."),
        ("incremental-extraction: maybe", "incremental-extraction: must be true or false."),
        ("system-schema-name: ''", "system-schema-name: must not be empty."),
        ("system-schema-name: 7", "system-schema-name: must be text. Put it in quotes."),
        ("include: public.*", 'include: must be a list: ["…"].'),
        ("include: []", "include: must have at least one entry."),
        ('include: [ok, ""]', "include[1]: must not be empty."),
        ("exclude: [1]", "exclude[0]: must be text. Put it in quotes."),
        ("exclude: {a: b}", 'exclude: must be a list: ["…"].'),
        ("schedule: hourly", "schedule: a schedule has five fields, this one has 1. Allowed: five fields (minute,"),
        ("schedule: '60 * * * *'", "schedule: the field 'minute' goes from 0 to 59"),
    ],
)
def test_a_wrong_value_tells_what_is_allowed(load, shop, line, told):
    assert error(load, shop + f"    {line}\n").startswith(f"tidemark.yaml:7: connections.shop.{told}")


@pytest.mark.parametrize("id", ["..", ".hidden", "a/b", "a b", "ä", '"a\\nb"', "''", "x" * 129])
def test_an_id_must_be_fit_to_be_part_of_a_path(load, id):
    told = error(load, f"store: x\nconnections:\n  shop:\n    app: postgresql\n    id: {id}\n    url: u\n")
    assert told.startswith("tidemark.yaml:5: connections.shop.id: must be up to 128 letters, digits,")


def test_a_number_for_an_id_wants_quotes(load):
    told = error(load, "store: x\nconnections:\n  shop: {app: postgresql, id: 0017, url: u}\n")
    assert told == "tidemark.yaml:3: connections.shop.id: must be text. Put it in quotes."


def test_a_name_must_be_fit_to_be_part_of_a_path(load):
    told = error(load, "store: x\nconnections:\n  my shop: {app: postgresql, id: a, url: u}\n")
    assert told.startswith("tidemark.yaml:3: connections.my shop: must be up to 128 letters")


def test_an_unknown_app_names_the_nearest_and_all(load):
    told = error(load, "store: x\nconnections:\n  shop:\n    app: postgres\n    id: a\n    url: u\n")
    assert told.startswith(
        "tidemark.yaml:4: connections.shop.app: there is no source pack of this name. Did you mean 'postgresql'? Known:"
    )


def test_missing_keys_name_the_line_of_their_section_and_their_purpose(load):
    told = errors(load, "store: x\nconnections:\n  shop:\n    id: a\n")
    assert told == [
        "tidemark.yaml:3: connections.shop.app: this key is missing. The kind of source, by the name of its source pack.",
        "tidemark.yaml:3: connections.shop.url: this key is missing. Where the source is. Put it into the environment: "
        "${SHOP_URL} is looked up when the connection is used.",
    ]
    assert error(load, "lake: {}\n").startswith("tidemark.yaml:1: store: this key is missing. Where objects are kept")


def test_two_connections_of_the_same_app_and_id_are_refused(load, shop):
    first, second = errors(load, shop + '  twin:\n    app: postgresql\n    id: "1700000000"\n    url: u\n')
    assert first.startswith("tidemark.yaml:5: connections.shop.id: has the same app and id as 'twin'")
    assert second.startswith("tidemark.yaml:9: connections.twin.id: has the same app and id as 'shop'")


def test_ids_that_the_lake_cannot_tell_apart_are_refused(load):
    _, told = errors(
        load, "store: x\nconnections:\n  a: {app: postgresql, id: A-1, url: u}\n  b: {app: postgresql, id: a_1, url: u}"
    )
    assert told.startswith("tidemark.yaml:4: connections.b.id: has the same app and id as 'a' (case and punctuation aside)")


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_file(load):
    told = errors(
        load,
        """\
        store: ftp://ann:hunter2@x
        control: mysql://ann:hunter2@db/tide
        spark: {master: local, remote: "sc://host"}
        lake: {a: [1], b: 1.5}
        email:
          host: ""
          port: 70000
          from: ann
          to: []
          password: 7
        connections:
          shop:
            app: oracl
            id: a
            url: 5
            copy-workers: 0
          shop: hunter2
          twin: [hunter2]
        colour: red
        """,
    )
    assert [re.match(r"tidemark\.yaml:(\d+): (\S+):", line).groups() for line in told] == [
        ("1", "store"),
        ("2", "control"),
        ("3", "spark"),
        ("4", "lake.a"),
        ("4", "lake.b"),
        ("6", "email.host"),
        ("7", "email.port"),
        ("8", "email.from"),
        ("9", "email.to"),
        ("10", "email.password"),
        ("17", "connections.shop"),
        ("18", "connections.twin"),
        ("19", "colour"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("store: s3://\ncontrol: postgresql://db\n", "1: store: must be a folder or s3://bucket/prefix."),
        ("store: file:///x\n", "1: store: must be a folder or s3://bucket/prefix."),
        ("store: [x]\n", "1: store: must be `key: value` lines"),
        ("store: 7\n", "1: store: must be `key: value` lines"),
        ("store: ''\n", "1: store: must not be empty."),
        ("store: {url: x, region: y}\n", "1: store: endpoint and region are for s3:// only"),
        (
            "store:\n  url: s3://b0\n  endpoint: host:1\ncontrol: postgresql://db\n",
            "3: store.endpoint: must be https://",
        ),
        (
            "store:\n  url: s3://b0\n  endpoint: https://a:hunter2@h\ncontrol: postgresql://db\n",
            "3: store.endpoint: must be",
        ),
        ("store: s3://bucket\n", "1: control: a store on S3 needs a control database. Allowed: postgresql://"),
        ("store: x\ncontrol: 'sqlite://'\n", "2: control: SQLite needs a file, since several"),
        ("store: x\ncontrol: 'sqlite:///:memory:'\n", "2: control: SQLite needs a file, since several"),
        ("store: x\ncontrol: hunter2\n", "2: control: this is not the URL of a database. Allowed: sqlite:///"),
        ("store: x\ncontrol: [1]\n", "2: control: must be text."),
        ("store: x\nspark: {remote: host}\n", "2: spark.remote: must be the address of a Spark Connect server"),
        ("store: x\nspark:\n  config: {a: [1]}\n", "3: spark.config.a: must be text."),
        ("store: x\nspark: {config: 7}\n", "2: spark.config: must be `key: value` lines"),
        ("store: x\nlake: {a: 1.5}\n", "2: lake.a: must be text, a whole number, or true or false."),
        ("store: x\nlake: [a]\n", "2: lake: must be `key: value` lines"),
        ("store: x\nconnections: [a]\n", "2: connections: must be `key: value` lines"),
        ("store: x\ndagster-home: [a]\n", "2: dagster-home: must be a path."),
        (
            "store: x\nemail: {host: h, from: a@b, to: ['a@b\\nBcc: c@d', 'x y']}\n",
            "2: email.to: must be mail addresses",
        ),
        ("store: x\nemail: {host: h, from: 'Ann <a@b>', to: [a@b]}\n", "2: email.from: must be mail addresses"),
        ("store: x\nemail: {host: h, from: a@b, to: [a@b], username: u}\n", "2: email: username and password go"),
    ],
)
def test_a_wrong_section_is_named(load, text, told):
    assert error(load, text).startswith(f"tidemark.yaml:{told}")


# --- the file itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "tidemark.yaml:1: the file is empty. The least it needs is one line: `store: .tidemark`."),
        ("# only words\n", "tidemark.yaml:1: the file is empty."),
        ("just words\n", "tidemark.yaml:1: this is not `key: value` lines."),
        ("# words\n- a\n- b\n", "tidemark.yaml:2: this is not `key: value` lines."),
        ("store: x\nspark:\n\tmaster: y\n", "tidemark.yaml:3: a tab. YAML is indented with spaces only."),
        ("store: x\nlake: {a: b\n", "tidemark.yaml:3: this is not YAML: "),
        ("store: x\n control: y\n", "tidemark.yaml:2: this is not YAML: "),
        ("store: x\nlake: {a: *hunter2}\n", "tidemark.yaml:2: this is not YAML: found undefined alias '…'"),
        ("store: x\ncontrol: @hunter2\n", "tidemark.yaml:2: this is not YAML: found character '@' that cannot start"),
        ("store: x\n---\nstore: y\n", "tidemark.yaml:2: a second document begins here."),
        ("store: x\nstore: y\n", "tidemark.yaml:2: store: this key stands in line 1 already. Keep one of the two."),
        ("store: x\nlake: {a: 1, a: 2}\n", "tidemark.yaml:2: lake.a: this key stands in line 2 already."),
        ("store: x\n7: y\n", "tidemark.yaml:2: ?: a key must be text. Put it in quotes."),
        ("store: x\nlake:\n  no: y\n", "tidemark.yaml:3: lake.?: a key must be text. Put it in quotes."),
        ("store: x\n? [a, b]\n: c\n", "tidemark.yaml:2: ?: a key must be text."),
        ("store: x\nlake: {a: !secret hunter2}\n", "tidemark.yaml:2: lake.a: tags (words that begin with !)"),
        ("store: x\nlake: &a {b: *a}\n", "tidemark.yaml:2: lake.b: this refers to itself."),
        ("store: x\nlake: {<<: hunter2}\n", "tidemark.yaml:2: lake: `<<` must be followed by the alias"),
        ("store: x\nlake: {a: \x07}\n", "tidemark.yaml:2: a character that cannot be in YAML (code 0x7). Remove it."),
        ("store: x\nlake: " + "[" * 1500, "tidemark.yaml:1: nested too deeply"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_says_how(load, text, told):
    assert error(load, text).startswith(told)


def test_a_file_that_is_not_utf8_says_where(load, tmp_path):
    (tmp_path / "tidemark.yaml").write_bytes(b"store: x\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"tidemark\.yaml:2: this is not UTF-8 text"):
        load_config()


def test_a_file_that_is_not_there_says_how_to_name_another(load, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"^tidemark\.yaml:1: .*No such file.*--config FILE or .* TIDEMARK_CONFIG\.$"):
        load_config()
    with pytest.raises(ConfigError, match=r"^else/where\.yaml:1: "):
        load_config(Path("else/where.yaml"))
    with pytest.raises(ConfigError, match=r"Is a directory"):
        load_config(tmp_path)


def test_a_date_or_a_strange_number_stays_the_text_it_is(load):
    config = load("store: 2026-01-02\nlake: {a: 2026-99-99, b: 0x_}\n")
    assert config.store.folder.name == "2026-01-02"
    assert config.lake == {"a": "2026-99-99", "b": "0x_"}
