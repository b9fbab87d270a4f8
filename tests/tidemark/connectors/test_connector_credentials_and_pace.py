"""Credentials by name, and requests within a rate."""

import time
from pathlib import Path

import pytest

from tidemark.config import load_config
from tidemark.connectors.contract import Pace
from tidemark.connectors.manifest import load_manifest
from tidemark.connectors.manifests import opened_connector
from tidemark.errors import ConfigError

pytestmark = pytest.mark.fast


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ERP_PASSWORD", "kept-elsewhere")
    (tmp_path / "tidemark.yaml").write_text(
        "store: store\ncredentials:\n  erp: {user: reader, password: '${ERP_PASSWORD}'}\n", encoding="utf-8"
    )
    return tmp_path


def manifest(folder: Path, name: str, extra: str = "") -> Path:
    path = folder / "m.yaml"
    path.write_text(
        f"connector: c\nkind: sql\nsettings: {{url: 'sqlite:///x.db'}}\ncredentials: {name}\n{extra}"
        "streams: [{id: s, key: [id]}]\n",
        encoding="utf-8",
    )
    return path


def test_credentials_by_name_come_from_the_configuration(written: Path) -> None:
    connector = opened_connector(load_config(written / "tidemark.yaml"), load_manifest(manifest(written, "erp")), "t1")
    assert connector.credentials == {"user": "reader", "password": "kept-elsewhere"}


def test_credentials_of_an_unknown_name_are_refused_with_the_nearest_one(written: Path) -> None:
    config = load_config(written / "tidemark.yaml")
    with pytest.raises(ConfigError, match=r"no credentials 'erb'.*Did you mean.*erp"):
        opened_connector(config, load_manifest(manifest(written, "erb")), "t1")


def test_no_password_shows_in_the_configuration(written: Path) -> None:
    assert "kept-elsewhere" not in repr(load_config(written / "tidemark.yaml"))


def test_a_rate_limit_spreads_requests_and_its_absence_does_not() -> None:
    def took(pace: Pace, requests: int) -> float:
        started = time.monotonic()
        for _ in range(requests):
            pace.wait()
        return time.monotonic() - started

    assert took(Pace(100), 6) >= 0.05
    assert took(Pace(None), 1000) < 5


def test_a_connector_obeys_the_rate_limit_of_its_manifest(written: Path) -> None:
    config = load_config(written / "tidemark.yaml")
    connector = opened_connector(config, load_manifest(manifest(written, "erp", "rate_limit: 100\n")), "t1")
    started = time.monotonic()
    for _ in range(6):
        connector.pace()
    assert time.monotonic() - started >= 0.05
