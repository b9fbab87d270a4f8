"""Reading over HTTP, for kinds whose source speaks it: one client, named errors, patience where the source asks for it.

A message names the address and what was requested. It never quotes an answer, a query or a header: they hold values.
"""

import gzip
import logging
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn
from urllib.parse import quote, urljoin, urlsplit

import httpx
import orjson

from tidemark.connectors.unknown_settings import unknown_settings
from tidemark.errors import ConfigError, SourceError, SourceRefused, SourceUnreachable

DEFAULT_TIMEOUT = 60.0
# How often the same is requested when the source says "later", and how long it may make us wait each time.
ATTEMPTS = 4
LONGEST_WAIT = 60.0
BUSY = (429, 503)

# These write the address of every request into the log, and its query holds values of state.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, unpacked; always with status 200."""

    url: str
    headers: httpx.Headers
    body: bytes
    what: str

    def json(self) -> Any:
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            raise SourceError(f"{self.what}: the answer is not JSON, or broke off in the middle. Run again.") from None

    def date(self) -> datetime:
        """The source's clock when it answered, to the second."""
        moment = moment_of(self.headers.get("Date"))
        if moment is None:
            raise SourceError(f"{self.what}: the answer has no header `Date`, so the source's clock is not known.")
        return moment


class HttpSource:
    """One address and the login for it. Not to be pickled: a connector makes it when it is first used."""

    def __init__(
        self,
        url: str,
        credentials: Mapping[str, str],
        before_request: Callable[[], None],
        *,
        timeout: float = DEFAULT_TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/") + "/"
        self._before_request = before_request
        self._timeout = timeout
        self._sleep = sleep
        token = credentials.get("token")
        self._client = httpx.Client(
            auth=(credentials["user"], credentials["password"]) if "user" in credentials else None,
            # Only what is checked to be whole when it is unpacked.
            headers={"Accept-Encoding": "gzip"} | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=timeout,
        )

    def get(
        self, path: str, what: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer to one request below the address; `what` names it in messages."""
        url = urljoin(self.url, quote(path, safe="/$"))
        if query:
            # A space must be %20: outside of forms, `+` is a plus sign.
            url += "?" + "&".join(name + "=" + quote(value, safe="$,()':/") for name, value in query.items())
        return self._answer(url, what, headers or {})

    def follow(self, answer: Answer, link: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer at a link that came with another one. The login is not carried to another server."""
        url = urljoin(answer.url, link)
        if urlsplit(url)[:2] != urlsplit(self.url)[:2]:
            raise SourceError(f"{answer.what}: the source links to another server. Set `url` to that one.")
        return self._answer(url, answer.what, headers or {})

    def close(self) -> None:
        self._client.close()

    def _answer(self, url: str, what: str, headers: Mapping[str, str]) -> Answer:
        for attempt in range(1, ATTEMPTS + 1):
            self._before_request()
            response, raw = self._sent(url, what, headers)
            wait = _wait_asked_for(response, attempt)
            if wait is None or attempt == ATTEMPTS:
                break
            self._sleep(wait)
        if response.status_code != 200:
            self._refuse(response, what)
        body = _unpacked(raw, response.headers.get("Content-Encoding", "identity"), what)
        if "html" in response.headers.get("Content-Type", ""):
            raise SourceError(
                f"{what}: {self.url} answered with a web page instead of data. Is `url` right, or is there a log-in page in "
                "front of it?"
            )
        return Answer(url, response.headers, body, what)

    def _sent(self, url: str, what: str, headers: Mapping[str, str]) -> tuple[httpx.Response, bytes]:
        try:
            response = self._client.send(self._client.build_request("GET", url, headers=dict(headers)), stream=True)
            try:
                return response, b"".join(response.iter_raw())
            finally:
                response.close()
        except httpx.ConnectError:
            trust = ", or its certificate is not trusted" if self.url.startswith("https:") else ""
            raise SourceUnreachable(f"{what}: nothing answers at {self.url}{trust}.") from None
        except httpx.TimeoutException:
            raise SourceUnreachable(
                f"{what}: no answer from {self.url} within {self._timeout:g} s. Raise `timeout`, or lower `page_size`."
            ) from None
        except httpx.HTTPError as error:
            raise SourceUnreachable(f"{what}: the connection to {self.url} broke off ({type(error).__name__}).") from None

    def _refuse(self, response: httpx.Response, what: str) -> NoReturn:
        status = response.status_code
        if status in (401, 403):
            why = "refused the login" if status == 401 else "does not allow this login to read it"
            raise SourceRefused(f"{what}: {self.url} {why} (status {status}). Check `credentials` and the rights there.")
        if status == 404:
            raise SourceError(f"{what}: there is no such thing at {self.url} (status 404). Check `url` and `source`.")
        if status in BUSY:
            raise SourceError(f"{what}: {self.url} is too busy (status {status}). Lower `rate_limit`, or run later.")
        if response.is_redirect:
            raise SourceError(f"{what}: {self.url} leads elsewhere (status {status}). Set `url` to the final address.")
        side = "failed" if status >= 500 else "does not understand the request"
        raise SourceError(f"{what}: {self.url} {side} (status {status}).")


def checked_address(kind: str, settings: Mapping[str, Any], credentials: Mapping[str, str], others: set[str]) -> None:
    """ConfigError for settings and credentials that an HTTP kind cannot use; `others` are the kind's own settings."""
    known = {"url", "timeout", *others}
    unknown = sorted(settings.keys() - known)
    if unknown or not isinstance(settings.get("url"), str):
        what = unknown_settings(unknown, known) if unknown else "`url` is missing"
        raise ConfigError(f"settings of a {kind} connector: {what}. It has: {', '.join(sorted(known))}.")
    url = urlsplit(settings["url"])
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"settings of a {kind} connector: `url` must begin with http:// or https:// and name a host.")
    if "@" in url.netloc or url.query or url.fragment:
        raise ConfigError(
            f"settings of a {kind} connector: `url` is an address without ? and #. A login belongs into `credentials`."
        )
    timeout = settings.get("timeout", DEFAULT_TIMEOUT)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise ConfigError(f"settings of a {kind} connector: `timeout` must be a number of seconds above 0.")
    if credentials.keys() not in (set(), {"user", "password"}, {"token"}):
        given = ", ".join(sorted(credentials))
        raise ConfigError(
            f"credentials of a {kind} connector: it takes `user` and `password`, or `token`, or none. There are: {given}."
        )


def moment_of(text: str | None) -> datetime | None:
    """The moment that a header gives, in UTC."""
    try:
        return parsedate_to_datetime(text or "").astimezone(UTC)
    except ValueError:
        return None


def _wait_asked_for(response: httpx.Response, attempt: int) -> float | None:
    """Seconds to wait before asking again. None if the source does not ask for that."""
    asked = response.headers.get("Retry-After")
    if response.status_code not in BUSY or (asked is None and response.status_code != 429):
        return None
    if asked is None:
        return float(2 ** (attempt - 1))
    if asked.isdigit():
        return min(float(asked), LONGEST_WAIT)
    until, now = moment_of(asked), moment_of(response.headers.get("Date"))
    span = (until - now).total_seconds() if until and now else 1.0
    return min(max(span, 0.0), LONGEST_WAIT)


def _unpacked(raw: bytes, encoding: str, what: str) -> bytes:
    if encoding == "identity":
        return raw
    if encoding != "gzip":
        raise SourceError(f"{what}: the answer is packed in a way that was not requested.")
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error):
        raise SourceError(f"{what}: the answer's gzip is damaged or broke off in the middle. Run again.") from None
