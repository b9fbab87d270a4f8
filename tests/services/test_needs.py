"""A test that lacks something says so, and in CI does not pass for it."""

import pytest
from _pytest.outcomes import Failed, Skipped

from tests.services.needs import need

pytestmark = pytest.mark.fast


def test_what_is_there_is_found() -> None:
    assert need("sh").endswith("/sh")


def test_what_is_missing_skips_the_test_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(Skipped, match="no-such-browser is not installed"):
        need("no-such-browser")


def test_what_is_missing_in_ci_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Failed, match="no-such-browser is not installed"):
        need("no-such-browser")


def test_the_package_is_named_if_it_is_called_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(Skipped, match="no-such-serverd is not installed: as root, `apt-get install no-such-server`"):
        need("no-such-serverd", "no-such-server")
