from pathlib import Path
from uuid import uuid4

import pytest

from tests.services.s3 import S3Server
from tidemark.store import LocalStore, ObjectStore, open_store


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
    return open_store(s3_url, endpoint=server.endpoint, region=server.region)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "store"))


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.fast), pytest.param("s3_store", marks=pytest.mark.service)])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Every kind of store: what they promise is the same."""
    found: ObjectStore = request.getfixturevalue(request.param)
    return found
