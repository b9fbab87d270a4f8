"""Salesforce's REST API through simple-salesforce: the login, the daily limit, and errors by name.

What the library raises carries the address with the query, and what the server answered. None of it is passed on.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import SalesforceAuthenticationFailed, SalesforceError

from tidemark.connectors.contract import StreamDescription
from tidemark.connectors.kinds._salesforce_fields import STAMP, Field, fields_of
from tidemark.connectors.kinds._salesforce_login import Login
from tidemark.errors import QuotaSpent, SourceError, SourceRefused, SourceUnreachable, TidemarkError

CONNECT_SECONDS = 10.0
# Salesforce itself gives a query up after 120 s.
ANSWER_SECONDS = 150.0

# Codes of its errors are words of its own, never values; anything else that comes in their place is not repeated.
CODE = re.compile(r"[A-Za-z_]{1,60}")
USAGE = re.compile(r"api-usage=(\d+)/(\d+)")
# Answers to a login that say nothing about it.
BUSY = {"SERVER_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "LOGIN_RATE_EXCEEDED", "server_error", "temporarily_unavailable"}


@dataclass(frozen=True)
class Answer:
    """The records of a query, all batches together; `total` is how many the server found."""

    records: list[dict[str, Any]] = field(repr=False)
    total: int


class Session(requests.Session):
    """Every request waits its turn and has a time limit, and the head of every answer is noted."""

    def __init__(self, pace: Callable[[], None], note: Callable[[Mapping[str, str]], None], ca_file: str | None) -> None:
        super().__init__()
        self._pace, self._note, self._ca_file = pace, note, ca_file
        # Without one, requests would put a login from ~/.netrc in the place of the token.
        self.auth = lambda request: request

    def request(self, method: str, url: str | bytes, *args: Any, **options: Any) -> requests.Response:
        self._pace()
        limits = {"timeout": (CONNECT_SECONDS, ANSWER_SECONDS), "verify": self._ca_file or True}
        response = super().request(method, url, *args, **limits | options)
        self._note(response.headers)
        return response


class Client(Salesforce):
    """The library's, which logs in when it is made and again when the session has expired."""

    def _refresh_session(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one of them carries the consumer key
            super()._refresh_session()


class SalesforceApi:
    """One organisation of Salesforce. Logs in when it is first asked something."""

    def __init__(self, where: Login, pace: Callable[[], None]) -> None:
        self.target = where.target
        self._where, self._pace = where, pace
        self._client: Salesforce | None = None
        self._subject = self._date = ""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def close(self) -> None:
        if self._client is not None:
            self._client.session.close()
        self._client = None

    # --- questions ---------------------------------------------------------------------------------------------------

    def objects(self) -> list[StreamDescription]:
        """The objects that can be queried. That one can be replicated means that it has the stamp."""
        with self._named(self.target):
            found = [each for each in self._object("sobjects")["sobjects"] if each["queryable"]]
            return [
                StreamDescription(str(each["name"]), ("Id",), (STAMP,) if each["replicateable"] else (), each["label"])
                for each in found
            ]

    def fields(self, name: str, stream: str) -> dict[str, Field]:
        """The fields of an object, as far as the user may see them; none if it cannot be queried."""
        with self._named(stream):
            described = self._object(f"sobjects/{name}/describe")
            return fields_of(described) if described["queryable"] else {}

    def clock(self, stream: str) -> datetime:
        """The server's own time, to the second, as it stands in the head of its answers."""
        with self._named(stream):
            self._object("")
            return parsedate_to_datetime(self._date).astimezone(UTC)

    def query(self, soql: str, stream: str, *, deleted: bool = False) -> Answer:
        """All records of a query; further batches are fetched by the locator that the server gives."""
        with self._named(stream):
            client = self._opened()
            answer = client.query(soql, include_deleted=deleted)
            total, records = int(answer["totalSize"]), list(map(dict, answer["records"]))
            while not answer["done"]:
                answer = client.query_more(checked_locator(answer), identifier_is_url=True)
                records += map(dict, answer["records"])
            return Answer(records, total)

    # --- the client --------------------------------------------------------------------------------------------------

    def _object(self, path: str) -> dict[str, Any]:
        answer = self._opened().restful(path)
        if not isinstance(answer, dict):
            raise TypeError  # as from a proxy with pages, and a clock, of its own
        return answer

    def _opened(self) -> Salesforce:
        if self._client is None:
            session = Session(self._pace, self._note, self._where.ca_file)
            self._client = Client(session=session, object_pairs_hook=dict, **self._where.arguments)
        return self._client

    def _note(self, head: Mapping[str, str]) -> None:
        """The server's clock, and how much of the daily limit is used."""
        self._date = head.get("Date", "")
        for used, limit in USAGE.findall(head.get("Sforce-Limit-Info", "")):
            if int(used) > self._where.share * int(limit):
                raise QuotaSpent(
                    f"{self._subject}: {used} of {limit} API calls of the last 24 hours at {self.target} are used, more "
                    f"than the share of {self._where.share:g} in `api_limit_share`. Run again later, raise it, or read less."
                )

    @contextmanager
    def _named(self, subject: str) -> Iterator[None]:
        """Whatever goes wrong inside becomes an error of ours, which has nothing of the request or the answer in it."""
        try:
            self._subject = subject
            yield
        except TidemarkError:
            raise
        except SalesforceAuthenticationFailed as error:
            raise self._login_failed(error, subject) from None
        except SalesforceError as error:
            raise self._refused(error, subject) from None
        except requests.exceptions.SSLError:
            raise SourceUnreachable(
                f"{subject}: the certificate of {self.target} is not trusted. If it is a private one, name it in `ca_file`."
            ) from None
        except requests.exceptions.JSONDecodeError:
            raise self._strange(subject) from None
        except (requests.RequestException, OSError) as error:
            raise SourceUnreachable(
                f"{subject}: {self.target} broke off or does not answer ({type(error).__name__}). Is the address right, and "
                "can it be reached from here?"
            ) from None
        except Exception:  # of the library, which takes answers for what they should be
            raise self._strange(subject) from None

    def _strange(self, subject: str) -> SourceError:
        return SourceError(
            f"{subject}: {self.target} answered with something that is no answer of Salesforce's API. Is it under "
            "maintenance, or is there a proxy in between?"
        )

    def _login_failed(self, error: SalesforceAuthenticationFailed, subject: str) -> SourceError:
        code = str(error.code)
        if code in BUSY or (code.isdigit() and int(code) >= 500):
            return SourceError(f"{subject}: {self.target} cannot take a login now ({code}). Run again later.")
        shown = f" ({code})" if CODE.fullmatch(code) else ""
        return SourceRefused(f"{subject}: {self.target} refused the login{shown}. Check the credentials and `domain`.")

    def _refused(self, error: SalesforceError, subject: str) -> SourceError:
        code, words = code_of(error)
        shown = f"{error.status} {code}".strip()
        if code == "REQUEST_LIMIT_EXCEEDED":
            if "concurrent" in words.lower():
                return SourceError(f"{subject}: {self.target} has too many long requests at once ({shown}).")
            return QuotaSpent(
                f"{subject}: {self.target} takes no more API calls: the limit of the last 24 hours is reached ({shown}). "
                "Run again later, or read less often."
            )
        if error.status in (401, 403):
            return SourceRefused(
                f"{subject}: {self.target} refused the session or the access ({shown}). Is the session expired, and may the "
                "user read this through the API?"
            )
        if error.status == 404 or code == "INVALID_TYPE":
            return SourceError(f"{subject}: {self.target} has no such object, or the user may not see it ({shown}).")
        if error.status >= 500:
            return SourceError(f"{subject}: {self.target} failed ({shown}). Run again later.")
        return SourceError(f"{subject}: {self.target} refused the query ({shown}). Does the object still have its fields?")


def code_of(error: SalesforceError) -> tuple[str, str]:
    """The code of an error, and its words, which are not for messages."""
    content: Any = error.content
    first = content[0] if isinstance(content, list) and content else None
    code, words = (first.get("errorCode"), first.get("message")) if isinstance(first, dict) else (None, None)
    return code if isinstance(code, str) and CODE.fullmatch(code) else "", str(words)


def checked_locator(answer: Mapping[str, Any]) -> str:
    """Where the next batch is: on the same server, and only if this one got on."""
    locator = answer["nextRecordsUrl"]
    if not answer["records"] or not locator.startswith("/services/data/"):
        raise ValueError
    return str(locator)
