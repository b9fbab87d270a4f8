"""Objects in an S3 bucket."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tidemark.errors import ObjectChanged, OutcomeUnknown, StoreError
from tidemark.store.base import ObjectInfo, ObjectStore, StoredObject
from tidemark.store.keys import is_hidden
from tidemark.store.patience import Patience, Tries
from tidemark.store.s3_errors import (
    NO_BUCKET,
    PartlyDeleted,
    code_of,
    is_missing,
    is_passing,
    leaves_open,
    may_have_happened,
    named_error,
    status_of,
)

# Metadata of an object written under a condition: says whose write it was when the answer got lost.
WRITE_ID = "tidemark-write"

DELETE_AT_ONCE = 1000
_SMALL = 1024 * 1024
_NO_ETAG = '"00000000000000000000000000000000"'

_S3_ERRORS = (ClientError, BotoCoreError, PartlyDeleted)

T = TypeVar("T")

log = logging.getLogger(__name__)


class S3Store(ObjectStore):
    """One PUT is atomic on S3: nothing is ever committed by copy or rename."""

    conditional_deletes = False
    etags_repeat = True

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.root = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint = endpoint
        self._region = region
        self._patience = patience or Patience()

    def sweep(self, *, everywhere: bool = False, older_than: timedelta = timedelta(0)) -> int:  # noqa: ARG002
        """Nothing to do: a PUT that breaks off leaves nothing behind."""
        return 0

    def _find(self, key: str) -> StoredObject | None:
        with self._named_errors("read", self.uri(key)):
            return self._riding_out(lambda: self._get(key))

    def _get(self, key: str) -> StoredObject | None:
        try:
            answer = self._client().get_object(**self._at(key))
        except ClientError as error:
            if is_missing(error):
                return None
            raise
        return StoredObject(answer["Body"].read(), answer["ETag"])

    def _head(self, key: str) -> ObjectInfo | None:
        with self._named_errors("look at", self.uri(key)):
            answer = self._riding_out(lambda: self._head_answer(key))
        if answer is None:
            return None
        return ObjectInfo(key, answer["ContentLength"], answer["ETag"], _whole_second(answer["LastModified"]))

    def _head_answer(self, key: str) -> dict[str, Any] | None:
        client = self._client()
        try:
            return dict(client.head_object(**self._at(key)))
        except ClientError as error:
            if not is_missing(error):
                raise
        # "No bucket" and "no object" look alike in the answer to a HEAD. Only one of them means a fresh start.
        try:
            client.head_bucket(Bucket=self._bucket)
        except ClientError as error:
            if is_missing(error):
                error.response["Error"]["Code"] = NO_BUCKET
            raise
        return None

    def _put(self, key: str, body: memoryview) -> str:
        with self._named_errors("write", self.uri(key)):
            answer = self._riding_out(lambda: self._client().put_object(**self._at(key), Body=_payload(body)))
        return str(answer["ETag"])

    def _put_if_absent(self, key: str, body: memoryview) -> str:
        return self._put_if(key, body, None, {"IfNoneMatch": "*"})

    def _put_if_unchanged(self, key: str, body: memoryview, etag: str) -> str:
        return self._put_if(key, body, etag, {"IfMatch": etag})

    def _put_if(self, key: str, body: memoryview, before: str | None, condition: dict[str, str]) -> str:
        """Writes over the object with etag `before` (None: over nothing), and finds out when the answer is lost.

        A blind second try after a first one that succeeded unheard would be answered "changed" about its own write. So
        every answer that leaves it open is settled by the object itself. As long as that is unchanged the same write is
        tried again under the same id: whichever try lands second is refused.
        """
        write_id, tries = uuid4().hex, self._patience.begin()
        possibly_written = False
        while True:
            try:
                return self._put_once(key, body, write_id, condition)
            except _S3_ERRORS as error:
                failure: Exception = error
            possibly_written |= may_have_happened(failure)
            if leaves_open(failure):
                try:
                    current = self._riding_out(lambda: self._head_answer(key), tries)
                except _S3_ERRORS as error:
                    failure, possibly_written = error, True
                    break
                if current is not None and _write_id(current) == write_id:
                    return str(current["ETag"])
                if (None if current is None else current["ETag"]) != before:
                    raise self._changed(key)
            elif not is_passing(failure):
                break
            if not tries.pause():
                break
        if possibly_written and code_of(failure) != NO_BUCKET:
            raise self._unknown(key) from failure
        raise named_error(failure, "write", self.uri(key), self._service()) from failure

    def _put_once(self, key: str, body: memoryview, write_id: str, condition: dict[str, str]) -> str:
        answer = self._client().put_object(**self._at(key), Body=_payload(body), Metadata={WRITE_ID: write_id}, **condition)
        return str(answer["ETag"])

    def _delete_if_unchanged(self, key: str, etag: str) -> bool:
        """The object is looked at before every try: some services answer "deleted" about an object that was gone before."""
        condition = {"IfMatch": etag} if self.conditional_deletes else {}
        tries = self._patience.begin()
        while True:
            with self._named_errors("delete", self.uri(key)):
                current = self._riding_out(lambda: self._head_answer(key), tries)
            if current is None:
                return False
            if current["ETag"] != etag:
                raise self._changed(key)
            try:
                self._client().delete_object(**self._at(key), **condition)
            except _S3_ERRORS as error:
                if not (leaves_open(error) or is_passing(error)) or not tries.pause():
                    raise named_error(error, "delete", self.uri(key), self._service()) from error
            else:
                return True

    def _changed(self, key: str) -> ObjectChanged:
        return ObjectChanged(f"{self.uri(key)}: somebody else wrote or deleted it first; read it again")

    def _unknown(self, key: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self.uri(key)}: {self._service()} gave no answer to a conditional write, which may or may not have "
            f"happened; run again when the service is back, and delete nothing before"
        )

    def _list(self, folder: str) -> Iterator[ObjectInfo]:
        found = []
        with self._named_errors("list", self.uri(folder)):
            for page in self._pages(folder):
                for entry in page.get("Contents", ()):
                    key = entry["Key"].removeprefix(self._prefix)
                    # A key that ends with a slash is a folder some console made, not an object.
                    if not is_hidden(key) and not key.endswith("/"):
                        modified = _whole_second(entry["LastModified"])
                        found.append(ObjectInfo(key, entry["Size"], entry["ETag"], modified))
        # AWS lists in the order of the keys, SeaweedFS and directory buckets folder by folder.
        yield from sorted(found, key=lambda info: info.key)

    def _pages(self, folder: str) -> Iterator[dict[str, Any]]:
        """Page by page, so that a long listing does not begin again because one page failed."""
        asked = {"Bucket": self._bucket, "Prefix": self._prefix + folder}
        while True:
            page = self._riding_out(lambda: dict(self._client().list_objects_v2(**asked)))
            yield page
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def _delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETE_AT_ONCE):
            chunk = [{"Key": self._prefix + key} for key in keys[start : start + DELETE_AT_ONCE]]
            with self._named_errors("delete from", self.root):
                self._riding_out(lambda: self._delete_once(chunk))  # noqa: B023

    def _delete_once(self, chunk: list[dict[str, str]]) -> None:
        answer = self._client().delete_objects(Bucket=self._bucket, Delete={"Objects": chunk, "Quiet": True})
        failed = [entry for entry in answer.get("Errors", ()) if entry.get("Code") != "NoSuchKey"]
        if failed:
            raise PartlyDeleted(len(failed), len(chunk), str(failed[0].get("Key")), str(failed[0].get("Code")))

    def _probe_with(self, key: str) -> None:
        super()._probe_with(key)
        # Lost answers are settled by metadata: a service that drops it would make us disown our own writes.
        self._put_if_absent(key, memoryview(b"3"))
        with self._named_errors("look at", self.uri(key)):
            written = self._riding_out(lambda: self._head_answer(key))
        if written is None or _write_id(written) is None:
            raise StoreError(f"{self.root}: {self._service()} does not keep the metadata of objects; use another service")

    def _obeys_conditional_deletes(self, key: str) -> bool:
        etag = self._put_if_absent(key, memoryview(b"4"))
        refused = not self._deletes_under_condition(key, _NO_ETAG)
        return refused and self._head(key) is not None and self._deletes_under_condition(key, etag)

    def _deletes_under_condition(self, key: str, etag: str) -> bool:
        """A service that does not know the condition may refuse it by any answer: each means that it is not to be used."""
        with self._named_errors("delete", self.uri(key)):
            try:
                self._riding_out(lambda: self._client().delete_object(**self._at(key), IfMatch=etag))
            except ClientError as error:
                if status_of(error) >= 500 and is_passing(error):
                    raise
                return False
        return True

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _client(self) -> Any:
        return _client(self._endpoint, self._region, os.getpid())

    def _service(self) -> str:
        return urlsplit(self._endpoint).netloc if self._endpoint else "AWS S3"

    def _riding_out(self, request: Callable[[], T], tries: Tries | None = None) -> T:
        """The answer to a request that may be repeated: what passes by itself is tried again while patience lasts."""
        tries = tries or self._patience.begin()
        while True:
            try:
                return request()
            except _S3_ERRORS as error:
                if not is_passing(error):
                    raise
                if tries.failures == 1:
                    seconds = self._patience.seconds
                    log.warning("%s: %s does not answer; trying for %g seconds", self.root, self._service(), seconds)
                if not tries.pause():
                    raise

    @contextmanager
    def _named_errors(self, doing: str, what: str) -> Iterator[None]:
        try:
            yield
        except _S3_ERRORS as error:
            raise named_error(error, doing, what, self._service()) from error


@lru_cache(maxsize=16)
def _client(endpoint: str | None, region: str | None, process: int) -> Any:  # noqa: ARG001
    """One client per process and address: making one takes 0.1 s, and a forked child must not use its parent's sockets.

    A session of its own, because boto3's shared default session is not safe for threads. Its retries are off: ours last
    longer, and a conditional write must not be repeated blindly.
    """
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        config=Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=32,
            s3={"addressing_style": "path" if endpoint else "auto"},
        ),
    )


def _write_id(answer: dict[str, Any]) -> str | None:
    # Some services give the names of metadata back in capitals.
    return next((value for name, value in answer["Metadata"].items() if name.lower() == WRITE_ID), None)


def _whole_second(moment: datetime) -> datetime:
    """Listings give milliseconds and heads do not: of one object both should say the same."""
    return moment.astimezone(UTC).replace(microsecond=0)


def _payload(body: memoryview) -> Any:
    """What boto3 sends: small bodies as bytes, large ones through a reader that does not copy them."""
    if body.nbytes <= _SMALL:
        return bytes(body)
    import pyarrow

    return pyarrow.BufferReader(pyarrow.py_buffer(body))
