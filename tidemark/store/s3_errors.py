"""What an answer of S3, or the lack of one, means."""

from typing import Any

from botocore.exceptions import (
    ClientError,
    ConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ResponseStreamingError,
    SSLError,
)

from tidemark.errors import StoreError, StoreFull, StoreIgnoresConditions

NO_BUCKET = "NoSuchBucket"
_NOT_OFFERED = 501
_NO_SPACE = 507

_ADVICE = {
    NO_BUCKET: "the bucket does not exist; create it or correct the store's address",
    "PermanentRedirect": "the bucket is in another region; set the store's region",
    "AuthorizationHeaderMalformed": "the bucket is in another region; set the store's region",
    "EntityTooLarge": "the object is larger than one PUT allows; write it in parts of less than 5 GiB",
}


# Answers that ask for another try, whatever their status.
_LATER = frozenset(
    {"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException"}
)

# An answer that broke off half-way or arrived damaged.
_BROKEN_OFF = (ResponseStreamingError, IncompleteReadError, FlexibleChecksumError)


class PartlyDeleted(Exception):
    """The answer to a request to delete many objects names some that were not."""

    def __init__(self, failed: int, asked: int, first: str, code: str) -> None:
        super().__init__(failed, asked, first, code)
        self.failed, self.asked, self.first, self.code = failed, asked, first, code


def status_of(error: Exception) -> int:
    """The HTTP status of the answer, 0 if there was none."""
    return int(_answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: Exception) -> str:
    """The service's own name for the error, such as NoSuchKey."""
    if isinstance(error, PartlyDeleted):
        return error.code
    return str(_answer(error).get("Error", {}).get("Code", ""))


def is_missing(error: Exception) -> bool:
    """There is no object of that name. HEAD answers without a code, so a missing bucket looks the same there."""
    return status_of(error) == 404 and code_of(error) != NO_BUCKET


def may_have_happened(error: Exception) -> bool:
    """No answer, or one by a service in trouble: the request may have been carried out unheard."""
    status = status_of(error)
    in_trouble = status == 408 or (status >= 500 and status not in (_NOT_OFFERED, _NO_SPACE))
    return in_trouble or isinstance(error, HTTPClientError | SSLError)


def is_passing(error: Exception) -> bool:
    """An outage that may be over in some seconds: the same request is worth another try."""
    passing = code_of(error) in _LATER or status_of(error) == 429 or may_have_happened(error)
    return passing or isinstance(error, (ConnectionError, *_BROKEN_OFF))


def leaves_open(error: Exception) -> bool:
    """After this answer to a conditional write only the object itself can show who won, if anybody."""
    # 409: two conditional writes met. 412 and 404: the condition failed, perhaps against our own write that a proxy on
    # the way sent twice.
    refused = status_of(error) in (409, 412, 429) or is_missing(error) or code_of(error) == "RequestTimeout"
    return refused or may_have_happened(error)


def named_error(error: Exception, doing: str, what: str, service: str) -> StoreError:
    """The error with a name: what happened, to which object, what to do."""
    code, status = code_of(error), status_of(error)
    if isinstance(error, PartlyDeleted):
        return StoreError(
            f"{what}: {error.failed} of {error.asked} objects could not be deleted, the first is {error.first} "
            f"({error.code}); check the bucket's policy and delete again"
        )
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return StoreError(
            f"{what}: could not {doing} it, no AWS credentials were found; set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY, or a profile or role"
        )
    if isinstance(error, ConnectionError | HTTPClientError):
        return StoreError(
            f"{what}: could not {doing} it, {service} does not answer ({type(error).__name__}); check the address and "
            f"the network"
        )
    if status == _NO_SPACE:
        return StoreFull(f"{what}: no space left at {service}, nothing was changed; free some and run again")
    if status == _NOT_OFFERED:
        return StoreIgnoresConditions(
            f"{what}: {service} does not offer conditional writes, so two runs would overwrite each other; "
            f"use a service that does, such as AWS S3"
        )
    if code in _ADVICE:
        return StoreError(f"{what}: could not {doing} it: {_ADVICE[code]}")
    if status == 403:
        return StoreError(
            f"{what}: could not {doing} it, access denied ({code}); check this process's AWS credentials and the "
            f"bucket's policy"
        )
    answer = f"{code}, HTTP {status}" if status else type(error).__name__
    return StoreError(f"{what}: could not {doing} it, {service} answered {answer}; look there for the cause")


def _answer(error: Exception) -> dict[str, Any]:
    return dict(error.response) if isinstance(error, ClientError) else {}
