"""A place of its own on the S3 server for every test that asks for one."""

from uuid import uuid4

import pytest

from tests.services.s3 import S3Server
from tidemark.store import ObjectStore, open_store


@pytest.fixture(scope="session")
def s3_bucket(s3: S3Server) -> str:
    return s3.new_bucket()


@pytest.fixture
def server(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, with its credentials and nothing else of AWS in this process's environment."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.fixture
def s3_url(s3_bucket: str) -> str:
    """A place of its own for one test."""
    return f"s3://{s3_bucket}/{uuid4().hex}"


@pytest.fixture
def s3_store(server: S3Server, s3_url: str) -> ObjectStore:
    """As a platform opens it: what it can do is known."""
    store = open_store(s3_url, endpoint=server.endpoint, region=server.region)
    store.probe()
    return store
