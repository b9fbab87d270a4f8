"""Names that become part of a path, and addresses of stores."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import UsageError
from tidemark.store import LocalStore, checked_id, open_store
from tidemark.store.keys import checked_key

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("value", ["a", "run-1", "2026-01-01T00.00", "A_b.c", "a..b", "x" * 128])
def test_an_id_of_plain_characters_is_accepted(value: str) -> None:
    assert checked_id(value, "run") == value


@pytest.mark.parametrize("value", ["", "..", ".", ".hidden", "-x", "a/b", "a\\b", "a b", "a\n", "ü", "x" * 129, "a\0"])
def test_an_id_that_is_no_single_name_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="connection"):
        checked_id(value, "connection")


@given(st.text(st.sampled_from("ab./\\\n\0~") | st.characters(), max_size=12))
def test_no_accepted_key_leaves_the_root(key: str) -> None:
    try:
        checked_key(key)
    except UsageError:
        return
    path = os.path.normpath(f"/place/of/store/{key}")
    assert path == f"/place/of/store/{key}"
    assert key.encode()


@pytest.mark.parametrize("url", ["", " ", "gs://bucket/x", "file:///tmp", "s3://", "s3:///x", "s3://b_/../c", "s3://ab//c"])
def test_an_address_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is no object store"):
        open_store(url)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "ftp://host", "https://"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(UsageError, match="is no S3 endpoint"):
        open_store("s3://bucket", endpoint=endpoint)


def test_a_login_in_the_endpoint_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        open_store("s3://bucket", endpoint="https://someone:hush@host")
    assert "hush" not in str(refused.value)


def test_roots_are_absolute_and_without_a_closing_slash(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert open_store("data/").root == f"{tmp_path}/data"
    assert open_store("s3://bucket").root == "s3://bucket"
    assert open_store("s3://bucket/").root == "s3://bucket"
    assert open_store("s3://bucket/a/b/").root == "s3://bucket/a/b"
    assert isinstance(open_store(str(tmp_path)), LocalStore)
