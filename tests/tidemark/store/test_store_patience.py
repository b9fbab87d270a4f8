"""How long a store that does not answer is tried again, and which answers are worth it."""

import pickle

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    FlexibleChecksumError,
    NoCredentialsError,
    ReadTimeoutError,
)

from tests.tidemark.store.conftest import FreeTime
from tidemark.store.patience import RIDE_OUT, Patience
from tidemark.store.s3_errors import PartlyDeleted, is_passing

pytestmark = pytest.mark.fast


def answer(status: int, code: str = "") -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


def test_patience_lasts_from_the_first_failure_on(free_time: FreeTime) -> None:
    tries = free_time.patience(RIDE_OUT).begin()
    free_time.now = 1000.0  # a long upload, and then a failure
    while tries.pause():
        pass
    assert 1000 + RIDE_OUT - 3 < free_time.now <= 1000 + RIDE_OUT


def test_a_failure_that_took_longer_than_patience_is_followed_by_one_more_try(free_time: FreeTime) -> None:
    tries = free_time.patience(RIDE_OUT).begin()
    assert tries.pause()
    free_time.now += RIDE_OUT  # a time-out
    assert not tries.pause()
    assert len(free_time.pauses) == 1


def test_those_who_failed_together_do_not_try_again_together(free_time: FreeTime) -> None:
    for _ in range(20):
        free_time.patience(RIDE_OUT).begin().pause()
    assert len(set(free_time.pauses)) > 1
    assert all(0.05 <= pause <= 0.1 for pause in free_time.pauses)


def test_patience_travels_to_tasks_with_its_store() -> None:
    assert pickle.loads(pickle.dumps(Patience())) == Patience()


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="http://here"),
        ConnectTimeoutError(endpoint_url="http://here"),
        ReadTimeoutError(endpoint_url="http://here"),
        FlexibleChecksumError(error_msg="damaged"),
        *(answer(status) for status in (408, 429, 500, 502, 503, 504)),
        answer(400, "RequestTimeout"),
        answer(503, "SlowDown"),
        PartlyDeleted(1, 2, "key", "InternalError"),
    ],
    ids=str,
)
def test_what_passes_by_itself_is_tried_again(error: Exception) -> None:
    assert is_passing(error)


@pytest.mark.parametrize(
    "error",
    [
        NoCredentialsError(),
        *(answer(status) for status in (400, 403, 404, 412, 501, 507)),
        answer(404, "NoSuchBucket"),
        PartlyDeleted(1, 2, "key", "AccessDenied"),
    ],
    ids=str,
)
def test_what_lasts_is_reported_at_once(error: Exception) -> None:
    assert not is_passing(error)
