"""A manifest that a test writes and loads."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.connectors.manifest import Manifest, load_manifest
from tidemark.errors import ConfigError

Load = Callable[[str], Manifest]
Told = Callable[[str], list[str]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes ./sap.yaml and loads it."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Manifest:
        Path("sap.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
        return load_manifest(Path("sap.yaml"))

    return written


@pytest.fixture
def told(load: Load) -> Told:
    """The lines that say what is wrong with a manifest."""

    def lines(text: str) -> list[str]:
        with pytest.raises(ConfigError) as refused:
            load(text)
        assert refused.value.exit_code == 2
        return str(refused.value).splitlines()

    return lines
