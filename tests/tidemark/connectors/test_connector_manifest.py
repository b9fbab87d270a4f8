"""A manifest says everything of a connector except state and secrets, and is told what is wrong by file and line."""

import jsonschema
import pytest
import yaml

from tests.tidemark.connectors.conftest import Load, Told
from tidemark.connectors.durations import Duration
from tidemark.connectors.manifest import manifest_schema
from tidemark.errors import ConfigError, UnknownStream

pytestmark = pytest.mark.fast

SEED = """\
connector: sap_s4hana_odata
kind: odata
streams:
  - id: sap.s4hana.gl_accounts
    key: [AccountID]
    cursor: LastUpdated
    schema_strategy: discovery
    state_handling: platform_registry
"""

FULL = """\
connector: shop
kind: sql
settings:
  url: ${SHOP_URL}
  options: {statement_timeout: 30, hosts: ["${HOST:-localhost}"]}
credentials:
  password: ${SHOP_PASSWORD}
schedule: "0 * * * *"
rate_limit: 2.5
streams:
  - id: jdbc.public.orders
    source: public.orders
    key: [region, id]
    cursor: [changed, id]
    cursor_type: [timestamp, integer]
    cursor_zone: Europe/Berlin
    schema_strategy: fixed
    schema: {region: string, id: bigint, changed: timestamp_ntz, price: "decimal(12, 2)", state: string, token: string}
    safety_window: PT5M
    hold_back: PT30S
    page_size: 500
    null_cursor: exclude
    baseline: ["2025-01-01", 0]
    full_refresh_fallback: true
    deletes: flag
    delete_flag: gone
    on_type_change: reject
"""


def test_the_manifest_of_the_seed_is_valid_as_it_stands(load: Load) -> None:
    stream = load(SEED).stream("sap.s4hana.gl_accounts")
    assert (stream.key, stream.cursor, stream.cursor_field) == (("AccountID",), "LastUpdated", "LastUpdated")
    assert stream.source_name == "gl_accounts"
    assert str(stream.parse_cursor("2025-09-30T23:59:59Z")) == "2025-09-30T23:59:59Z"


def test_what_is_not_said_has_the_documented_default(load: Load) -> None:
    stream = load("{connector: c, kind: files, streams: [{id: a.b, key: [x]}]}").streams[0]
    assert stream.model_dump() == {
        "id": "a.b",
        "source": "",
        "key": ("x",),
        "cursor": None,
        "cursor_type": "timestamp",
        "cursor_zone": None,
        "schema_strategy": "discovery",
        "fixed_schema": None,
        "state_handling": "platform_registry",
        "safety_window": "PT0S",
        "hold_back": "PT0S",
        "page_size": 10_000,
        "null_cursor": "fail",
        "baseline": None,
        "full_refresh_fallback": False,
        "deletes": "none",
        "delete_flag": None,
        "max_deleted_percent": 50,
        "on_type_change": "new_column",
    }


def test_everything_may_be_said(load: Load) -> None:
    manifest = load(FULL)
    stream = manifest.streams[0]
    assert (manifest.schedule, manifest.rate_limit, stream.source_name) == ("0 * * * *", 2.5, "public.orders")
    assert stream.safety_window == Duration.parse("PT5M")
    assert stream.fixed_schema is not None
    assert stream.fixed_schema["price"] == "decimal(12,2)"
    assert str(stream.baseline_cursor()) == '["2025-01-01","0"]'
    assert stream.cursor_field == '["changed","id"]'


def test_the_environment_is_asked_only_when_the_connector_is_used(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = load(FULL)
    with pytest.raises(ConfigError, match=r"sap.yaml:4: settings.url: the environment variable SHOP_URL is not set"):
        manifest.resolved_settings()
    with pytest.raises(ConfigError, match=r"sap.yaml:7: credentials.password: .* SHOP_PASSWORD is not set"):
        manifest.resolved_credentials()
    monkeypatch.setenv("SHOP_URL", "sqlite:///shop.db")
    monkeypatch.setenv("SHOP_PASSWORD", "sesame")
    options = {"statement_timeout": 30, "hosts": ["localhost"]}
    assert manifest.resolved_settings() == {"url": "sqlite:///shop.db", "options": options}
    assert manifest.resolved_credentials() == {"password": "sesame"}
    assert "sesame" not in repr(manifest)


def test_credentials_may_be_only_named(load: Load) -> None:
    manifest = load(SEED + "credentials: sap-production\n")
    assert manifest.resolved_credentials(lambda name: {"name": name}) == {"name": "sap-production"}
    with pytest.raises(ConfigError, match=r"sap.yaml:9: credentials: "):
        manifest.resolved_credentials()


def test_a_stream_that_is_not_there_gets_the_nearest_match(load: Load) -> None:
    with pytest.raises(UnknownStream, match=r"Did you mean 'sap.s4hana.gl_accounts'"):
        load(SEED).stream("sap.s4hana.gl_account")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("page_sise: 5", "streams[0].page_sise: unknown key. Did you mean 'page_size'? Allowed: id, source, key, cursor,"),
        ("deletes: compar", "streams[0].deletes: there is no such choice. Did you mean 'compare'? Allowed: none, compare,"),
        ("null_cursor: maybe", "streams[0].null_cursor: there is no such choice. Allowed: fail, include, exclude."),
        ("on_type_change: [x]", "streams[0].on_type_change: there is no such choice. Allowed: new_column, reject."),
        ("cursor_type: timestmp", "streams[0].cursor_type: must be one of timestamp, integer, decimal, text, or a list"),
        ("cursor_type: [timestamp, text]", "streams[0].cursor_type: a list of types needs a list of as many fields"),
        ("cursor_zone: Europe/Berln", "streams[0].cursor_zone: there is no such time zone."),
        ("max_deleted_percent: 20", "streams[0].max_deleted_percent: is only for deletes: compare."),
        ("cursor_zone: ../etc", "streams[0].cursor_zone: there is no such time zone."),
        ("safety_window: 5m", "streams[0].safety_window: is not an ISO 8601 duration. Allowed: "),
        ("safety_window: P1M", "streams[0].safety_window: months and years have no fixed length."),
        ("hold_back: 30", "streams[0].hold_back: must be a duration."),
        ("page_size: 0", "streams[0].page_size: must be at least 1."),
        ("schema: {AccountID: string}", "streams[0].schema: is only for schema_strategy: fixed."),
        ("delete_flag: gone", "streams[0].delete_flag: is only for deletes: flag."),
        ("baseline: yesterday", "streams[0].baseline: cannot be a cursor: a value of the cursor 'LastUpdated' is not an"),
        ("full_refresh_fallback: sometimes", "streams[0].full_refresh_fallback: must be true or false."),
    ],
)
def test_what_is_wrong_is_told_with_line_and_what_is_allowed(told: Told, line: str, expected: str) -> None:
    lines = told(f"{SEED}    {line}\n")
    assert len(lines) == 1
    assert lines[0].startswith(f"sap.yaml:9: {expected}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key: []", "streams[0].key: must have at least one entry."),
        ("key: AccountID", 'streams[0].key: must be a list: ["…"].'),
        ("key: [a, a]", "streams[0].key: names a field twice."),
        ("schema_strategy: fixd", "streams[0].schema_strategy: there is no such choice. Did you mean 'fixed'?"),
        ("schema_strategy: fixed", "streams[0]: schema_strategy: fixed needs the fields and their types in schema."),
        ("deletes: flag", "streams[0]: deletes: flag needs the field that marks deleted records in delete_flag."),
        ("state_handling: local", "streams[0].state_handling: there is no such choice. Allowed: platform_registry."),
        (
            "{schema_strategy: fixed, schema: {x: strng}}",
            "streams[0].schema: x: there is no such type. Did you mean 'string'?",
        ),
        ("{schema_strategy: fixed, schema: {x: 'decimal(39,2)'}}", "streams[0].schema: x: a decimal has a precision from 1"),
        ("{schema_strategy: fixed, schema: {y: string}}", "streams[0]: schema lacks a field of the key or the cursor: x."),
        ("{cursor: n, cursor_type: integer, safety_window: PT5M}", "streams[0].safety_window: is a length of time"),
        ("safety_window: PT5M", "streams[0].safety_window: is a length of time"),
        ("baseline: 7", "streams[0].baseline: needs a cursor."),
        ("{cursor: n, cursor_type: integer, baseline: true}", "streams[0].baseline: cannot be a cursor"),
        ("{id: a/b}", "streams[0].id: must be up to 128 letters"),
    ],
)
def test_keys_that_do_not_go_together_are_told(told: Told, text: str, expected: str) -> None:
    wrong = yaml.safe_load(text)
    stream = {"id": "a.b", "key": ["x"], **wrong}
    lines = told(yaml.safe_dump({"connector": "c", "kind": "sql", "streams": [stream]}))
    assert len(lines) == 1
    assert expected in lines[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: odata", "sap.yaml:1: connector: this key is missing. The connector's id"),
        ("connector: c\nkind: odta", "sap.yaml:2: kind: there is no connector of this kind. Did you mean 'odata'? Known: "),
        (
            "connector: c\nkind: sql\nstream: []",
            "sap.yaml:3: stream: unknown key. Did you mean 'streams'? Allowed: connector,",
        ),
        ("connector: c\nkind: sql\nstreams: []", "sap.yaml:3: streams: must have at least one entry."),
        ("connector: c\nkind: sql\nrate_limit: 0", "sap.yaml:3: rate_limit: must be more than 0"),
        ("connector: c\nkind: sql\nrate_limit: fast", "sap.yaml:3: rate_limit: must be a number."),
        ("connector: c\nkind: sql\nschedule: hourly", "sap.yaml:3: schedule: a schedule has five fields"),
        ("connector: c\nkind: sql\nsettings: {url: '${'}", "sap.yaml:3: settings.url: '${' is not followed by a name"),
        ("connector: c\nkind: sql\ncredentials: []", "sap.yaml:3: credentials: must be a name, or"),
        ("", "sap.yaml:1: the file is empty. The least it needs is `connector`"),
        ("- x", "sap.yaml:1: this is not `key: value` lines. The least it needs"),
    ],
)
def test_what_is_wrong_above_the_streams_is_told_too(told: Told, text: str, expected: str) -> None:
    assert any(line.startswith(expected) for line in told(text))


def test_all_that_is_wrong_is_told_at_once(told: Told) -> None:
    lines = told(SEED.replace("odata\n", "odta\n").replace("[AccountID]", "[]") + "    page_size: x\n")
    assert [line.split(": ")[0] for line in lines] == ["sap.yaml:2", "sap.yaml:5", "sap.yaml:9"]


def test_two_streams_of_one_table_are_refused(told: Told) -> None:
    lines = told(SEED + "  - {id: SAP.s4hana-gl.accounts, key: [x]}\n")
    assert lines == [
        "sap.yaml:9: streams[1].id: has the same id as 'sap.s4hana.gl_accounts' (case and punctuation aside). "
        "Give it one of its own."
    ]


@pytest.mark.parametrize("key", ["last_cursor", "cursor_value", "state", "lastCursor", "checkpoint"])
@pytest.mark.parametrize("indent", ["", "    "])
def test_state_is_refused_by_name_wherever_it_is_written(told: Told, key: str, indent: str) -> None:
    lines = told(f"{SEED}{indent}{key}: 2025-09-30T23:59:59Z\n")
    assert len(lines) == 1
    assert lines[0].startswith("sap.yaml:9: ")
    assert "a manifest never holds state." in lines[0]
    assert "2025" not in lines[0]


@pytest.mark.parametrize("key", ["password", "token", "secret", "client_secret", "clientSecret", "API-Key", "Passwd"])
@pytest.mark.parametrize(
    "place", ["{key}: sesame", "settings: {{{key}: sesame}}", "settings: {{a: [{{{key}: '${{SESAME}}'}}]}}"]
)
def test_a_secret_is_refused_by_name_wherever_it_is_written(told: Told, key: str, place: str) -> None:
    lines = told(SEED + place.format(key=key) + "\n")
    assert len(lines) == 1
    assert "a manifest never holds a secret." in lines[0]
    assert "sesame" not in lines[0].lower().replace("${sesame}", "")


@pytest.mark.parametrize("value", ["sesame", "${PW:-sesame}", "x${PW}", "7", "'$${PW}'", "[sesame]"])
def test_a_credential_is_a_reference_and_nothing_else(told: Told, value: str) -> None:
    lines = told(SEED + f"credentials:\n  password: {value}\n")
    assert len(lines) == 1
    assert "credentials" in lines[0]
    assert "password: a secret is never written here." in lines[0]
    assert "sesame" not in lines[0]


def test_a_login_in_an_address_is_refused(told: Told) -> None:
    lines = told(SEED + "settings:\n  url: postgresql://shop:sesame@host/db\n")
    assert lines == ["sap.yaml:10: settings.url: holds a password. Put the whole value into the environment: ${NAME}."]


def test_settings_that_only_sound_like_secrets_are_left_alone(load: Load) -> None:
    settings = {"token_url": "https://host:8443/token", "statement": "select 1", "user": "reader@host"}
    assert load(SEED + f"settings: {settings}\n").settings == settings


def test_the_schema_for_editors_agrees_with_what_is_loaded() -> None:
    schema = manifest_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert valid(yaml.safe_load(SEED))
    assert valid(yaml.safe_load(FULL))
    assert valid(yaml.safe_load(SEED + "rate_limit: ${RATE}\n"))
    for wrong in ("page_sise: 5", "deletes: compar", "page_size: 0", "state_handling: local", "safety_window: 5"):
        assert not valid(yaml.safe_load(f"{SEED}    {wrong}\n")), wrong


def test_every_key_of_the_schema_is_described() -> None:
    schema = manifest_schema()
    sections = [schema, schema["$defs"]["StreamSpec"]]
    assert [key for part in sections for key, value in part["properties"].items() if not value.get("description")] == []
    assert not [key for part in sections for key in part["properties"] if "(" in key]
