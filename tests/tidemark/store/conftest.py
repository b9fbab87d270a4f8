from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.services.s3 import S3Server, seaweedfs
from tidemark.store import LocalStore, ObjectStore, open_store


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with this process's environment holding its credentials."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def s3_url(s3_bucket: str) -> str:
    """A place of its own for one test."""
    return f"s3://{s3_bucket}/{uuid4().hex}"


@pytest.fixture
def s3_store(s3: S3Server, s3_url: str) -> ObjectStore:
    return open_store(s3_url, endpoint=s3.endpoint, region=s3.region)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "store"))


@pytest.fixture(
    params=[pytest.param("local", marks=pytest.mark.fast), pytest.param("s3_store", marks=pytest.mark.service)]
)
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Every kind of store: what they promise is the same."""
    found: ObjectStore = request.getfixturevalue(request.param)
    return found
