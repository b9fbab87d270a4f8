"""The object store: one small interface over a local folder or S3."""

import re
from urllib.parse import urlsplit

from tidemark.errors import UsageError
from tidemark.store.base import Body, ObjectInfo, ObjectStore, StoredObject
from tidemark.store.keys import checked_id
from tidemark.store.local import LocalStore

__all__ = ["Body", "LocalStore", "ObjectInfo", "ObjectStore", "StoredObject", "checked_id", "open_store"]

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")


def open_store(url: str, *, endpoint: str | None = None, region: str | None = None) -> ObjectStore:
    """The store at a folder or at `s3://bucket/prefix`; nothing is touched before its first use (see `probe`)."""
    if not url.startswith("s3://"):
        if not url.strip() or "://" in url:
            raise UsageError(f"{url!r} is no object store: give a folder or s3://bucket/prefix")
        return LocalStore(url)

    # Importing boto3 takes 0.3 s: only those who use S3 pay for it.
    from tidemark.store.s3 import S3Store

    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    prefix = prefix.removesuffix("/")
    if not _BUCKET.fullmatch(bucket) or (prefix and any(part in ("", ".", "..") for part in prefix.split("/"))):
        raise UsageError(f"{url!r} is no object store: write it as s3://bucket/prefix")
    return S3Store(bucket, prefix, endpoint=_checked_endpoint(endpoint) if endpoint else None, region=region)


def _checked_endpoint(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.username or parts.password:
        raise UsageError("the S3 endpoint contains a login: remove it, credentials come from the environment")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{endpoint!r} is no S3 endpoint: write it as https://host:port")
    return endpoint
