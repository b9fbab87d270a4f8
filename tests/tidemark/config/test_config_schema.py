from pathlib import Path

import jsonschema
import pytest
import yaml

from tidemark.catalog.packs import known_apps
from tidemark.config import config_schema

pytestmark = pytest.mark.fast

PROJECT = Path(__file__).parents[3]


def valid(text: str) -> bool:
    return jsonschema.Draft202012Validator(config_schema()).is_valid(yaml.safe_load(text))


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(config_schema())


def test_every_key_is_described_and_written_with_hyphens():
    schema = config_schema()
    sections = [schema, *schema["$defs"].values(), schema["$defs"]["StoreSettings"]["anyOf"][1]]
    properties = {key: value for section in sections for key, value in section.get("properties", {}).items()}
    assert {"store", "column-batch-size", "from", "dagster-home", "endpoint", "master"} <= properties.keys()
    assert not [key for key in properties if "_" in key or "(" in key or key in ("name", "path", "origin")]
    assert [key for key, value in properties.items() if not value.get("description")] == []


def test_the_configuration_of_the_project_fits_it():
    assert valid((PROJECT / "tidemark.yaml").read_text())


@pytest.mark.parametrize(
    "text",
    [
        "store: x",
        "store: {url: s3://b, region: r}",
        "{store: x, email: {host: h, from: a@b, to: [a@b], port: '${PORT}', starttls: '${TLS:-true}'}}",
        "{store: x, connections: {shop: {app: postgresql, id: '1', url: u, copy-workers: 5}}}",
    ],
)
def test_what_is_right_fits(text):
    assert valid(text)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "store: 7",
        "{store: x, stor: y}",
        "{store: {url: x, endpont: y}}",
        "{store: x, email: {host: h, from: a@b, to: [a@b], port: many}}",
        "{store: x, connections: {shop: {app: postgresql, id: '1', url: u, copy-workers: 0}}}",
        "{store: x, connections: {shop: {app: postgresql, id: '1', url: u, copy_workers: 1}}}",
        "{store: x, connections: {shop: {app: postgresql, id: '1', url: u, name: x}}}",
        "{store: x, connections: {shop: {app: postgres, id: '1', url: u}}}",
        "{store: x, connections: {shop: {app: postgresql, id: 1, url: u}}}",
    ],
)
def test_what_is_wrong_does_not(text):
    assert not valid(text)


def test_the_apps_are_those_that_have_a_pack():
    assert config_schema()["$defs"]["Connection"]["properties"]["app"]["enum"] == list(known_apps())
