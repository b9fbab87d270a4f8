"""Objects in an S3 bucket."""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    IncompleteReadError,
    ResponseStreamingError,
)

from tidemark.errors import ObjectChanged, OutcomeUnknown, StoreError
from tidemark.store.base import ObjectInfo, ObjectStore, StoredObject
from tidemark.store.keys import is_hidden
from tidemark.store.s3_errors import NO_BUCKET, code_of, is_missing, leaves_open, may_have_happened, named_error

# Metadata of an object written under a condition: says whose write it was when the answer got lost.
WRITE_ID = "tidemark-write"

ATTEMPTS = 4
DELETE_AT_ONCE = 1000
_SMALL = 1024 * 1024

_S3_ERRORS = (ClientError, BotoCoreError)

# boto3 repeats requests, but not a body that broke off half-way or arrived damaged.
_BROKEN_OFF = (ResponseStreamingError, IncompleteReadError, FlexibleChecksumError)


class S3Store(ObjectStore):
    """One PUT is atomic on S3: nothing is ever committed by copy or rename."""

    def __init__(self, bucket: str, prefix: str = "", *, endpoint: str | None = None, region: str | None = None) -> None:
        self.root = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint = endpoint
        self._region = region

    def sweep(self) -> int:
        """Nothing to do: a PUT that breaks off leaves nothing behind."""
        return 0

    def _find(self, key: str) -> StoredObject | None:
        with self._named_errors("read", self.uri(key)):
            for attempt in range(ATTEMPTS - 1):
                try:
                    return self._get(key)
                except _BROKEN_OFF:
                    _pause(attempt)
            return self._get(key)

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
            answer = self._head_answer(key)
            return None if answer is None else ObjectInfo(key, answer["ContentLength"], answer["ETag"])

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
            return str(self._client().put_object(**self._at(key), Body=_payload(body))["ETag"])

    def _put_if_absent(self, key: str, body: memoryview) -> str:
        return self._put_if(key, body, None, {"IfNoneMatch": "*"})

    def _put_if_unchanged(self, key: str, body: memoryview, etag: str) -> str:
        return self._put_if(key, body, etag, {"IfMatch": etag})

    def _put_if(self, key: str, body: memoryview, before: str | None, condition: dict[str, str]) -> str:
        """Writes over the object with etag `before` (None: over nothing), and finds out when the answer is lost.

        The client's own retries are off: if the first try succeeded unheard, the second would be told "changed" about
        its own write. Instead every answer that leaves it open is settled by the object itself. As long as that is
        unchanged the same write is tried again under the same id: whichever try lands second is refused.
        """
        write_id = uuid4().hex
        possibly_written = False
        for attempt in range(ATTEMPTS):
            try:
                return self._put_once(key, body, write_id, condition)
            except _S3_ERRORS as error:
                failure = error
            possibly_written |= may_have_happened(failure)
            if not leaves_open(failure):
                break
            current = self._read_back(key)
            if current is not None and _write_id(current) == write_id:
                return str(current["ETag"])
            if (None if current is None else current["ETag"]) != before:
                raise ObjectChanged(f"{self.uri(key)}: somebody else wrote or deleted it first; read it again")
            _pause(attempt)
        if possibly_written:
            raise self._unknown(key) from failure
        raise named_error(failure, "write", self.uri(key), self._service()) from failure

    def _put_once(self, key: str, body: memoryview, write_id: str, condition: dict[str, str]) -> str:
        answer = self._client(attempts=1).put_object(
            **self._at(key), Body=_payload(body), Metadata={WRITE_ID: write_id}, **condition
        )
        return str(answer["ETag"])

    def _read_back(self, key: str) -> dict[str, Any] | None:
        try:
            return self._head_answer(key)
        except _S3_ERRORS as error:
            if code_of(error) == NO_BUCKET:
                raise named_error(error, "write", self.uri(key), self._service()) from error
            raise self._unknown(key) from error

    def _unknown(self, key: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self.uri(key)}: {self._service()} gave no answer to a conditional write, which may or may not have "
            f"happened; run again when the service is back, and delete nothing before"
        )

    def _list(self, folder: str) -> Iterator[ObjectInfo]:
        found = []
        with self._named_errors("list", self.uri(folder)):
            pages = self._client().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + folder):
                for entry in page.get("Contents", ()):
                    key = entry["Key"].removeprefix(self._prefix)
                    # A key that ends with a slash is a folder some console made, not an object.
                    if not is_hidden(key) and not key.endswith("/"):
                        found.append(ObjectInfo(key, entry["Size"], entry["ETag"]))
        # AWS lists in the order of the keys, SeaweedFS and directory buckets folder by folder.
        yield from sorted(found, key=lambda info: info.key)

    def _delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETE_AT_ONCE):
            chunk = [{"Key": self._prefix + key} for key in keys[start : start + DELETE_AT_ONCE]]
            with self._named_errors("delete from", self.root):
                answer = self._client().delete_objects(Bucket=self._bucket, Delete={"Objects": chunk, "Quiet": True})
            failed = [entry for entry in answer.get("Errors", ()) if entry.get("Code") != "NoSuchKey"]
            if failed:
                raise StoreError(
                    f"{self.root}: {len(failed)} of {len(chunk)} objects could not be deleted, the first is "
                    f"{failed[0].get('Key')} ({failed[0].get('Code')}); check the bucket's policy and delete again"
                )

    def _probe_with(self, key: str) -> None:
        super()._probe_with(key)
        # Lost answers are settled by metadata: a service that drops it would make us disown our own writes.
        self._put_if_absent(key, memoryview(b"3"))
        with self._named_errors("look at", self.uri(key)):
            written = self._head_answer(key)
        if written is None or _write_id(written) is None:
            raise StoreError(f"{self.root}: {self._service()} does not keep the metadata of objects; use another service")

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _client(self, attempts: int = ATTEMPTS) -> Any:
        return _client(self._endpoint, self._region, attempts, os.getpid())

    def _service(self) -> str:
        return urlsplit(self._endpoint).netloc if self._endpoint else "AWS S3"

    @contextmanager
    def _named_errors(self, doing: str, what: str) -> Iterator[None]:
        try:
            yield
        except _S3_ERRORS as error:
            raise named_error(error, doing, what, self._service()) from error


@lru_cache(maxsize=16)
def _client(endpoint: str | None, region: str | None, attempts: int, process: int) -> Any:  # noqa: ARG001
    """One client per process and address: making one takes 0.1 s, and a forked child must not use its parent's sockets.

    A session of its own, because boto3's shared default session is not safe for threads.
    """
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        config=Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=32,
            s3={"addressing_style": "path" if endpoint else "auto"},
        ),
    )


def _write_id(answer: dict[str, Any]) -> str | None:
    # Some services give the names of metadata back in capitals.
    return next((value for name, value in answer["Metadata"].items() if name.lower() == WRITE_ID), None)


def _payload(body: memoryview) -> Any:
    """What boto3 sends: small bodies as bytes, large ones through a reader that does not copy them."""
    if body.nbytes <= _SMALL:
        return bytes(body)
    import pyarrow

    return pyarrow.BufferReader(pyarrow.py_buffer(body))


def _pause(attempt: int) -> None:
    """Waits longer each time, and not as long as the others do: those who collided should not meet again."""
    time.sleep(random.uniform(0.5, 1.0) * 0.1 * 2**attempt)
