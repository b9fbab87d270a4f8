"""A configuration file that a test writes and loads."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.config import Config, load_config
from tidemark.errors import ConfigError

Load = Callable[[str], Config]

SHOP = """\
store: .tidemark
connections:
  shop:
    app: postgresql
    id: "1700000000"
    url: ${SHOP_URL}
"""


def whole(config: Config) -> Config:
    """The configuration, if none of its connections is broken."""
    if config.broken:
        raise ConfigError.of(each for broken in config.broken for each in broken.findings)
    return config


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes ./tidemark.yaml and loads it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMARK_CONFIG", raising=False)
    monkeypatch.delenv("SHOP_URL", raising=False)

    def written(text: str) -> Config:
        Path("tidemark.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
        return whole(load_config())

    return written


@pytest.fixture
def shop() -> str:
    """A small configuration, six lines long; more lines of the connection may follow."""
    return SHOP
