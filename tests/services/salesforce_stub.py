"""A stand-in for Salesforce over HTTPS: its logins, describes, query locators, limits and refusals, over SQLite in memory.

There is no Salesforce to be had for tests. This one evaluates SOQL instead of recognising it, so that a wrong query gives
wrong records here too.
"""

import base64
import ipaddress
import json
import re
import secrets
import sqlite3
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_connection, socket
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.services.salesforce_soql import Parser, SoqlRefused, StubField, as_stored

VERSION = "62.0"
ROOT = f"/services/data/v{VERSION}/"
LONGEST_HEAD = 16_384


@dataclass
class Fault:
    """What becomes of requests whose path has the pattern in it: an answer, no answer ("hang"), or a cut line ("drop")."""

    path: str
    status: int = 200
    body: Any = ""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    instead: str = "answer"

    @property
    def content(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


@dataclass
class SalesforceStub:
    """What it holds, what it was asked, and what it does wrong."""

    host: str = ""
    ca_file: str = ""
    proxy: str = ""
    batch: int = 2000
    used: int = 0
    limit: int = 1_000_000
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    session_id: str = field(default_factory=lambda: secrets.token_hex(16))
    # Login name to what it is proven with: password and token, secret, or public key.
    logins: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    before_batch: Callable[[], object] | None = None
    after_query: Callable[[], object] | None = None
    objects: dict[str, dict[str, StubField]] = field(default_factory=dict)
    traits: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._lock = threading.RLock()
        self._locators: dict[str, tuple[str, list[str], list[str]]] = {}

    # --- what tests do -----------------------------------------------------------------------------------------------

    def make(self, name: str, fields: list[StubField], **traits: Any) -> None:
        own = [StubField("Id", "id", False), StubField("IsDeleted", "boolean", False)]
        own += [StubField("SystemModstamp", "datetime", False)]
        # A field of the test's own takes the place of one that most objects have.
        self.objects[name] = {each.name: each for each in [*own, *fields]}
        self.traits[name] = {"queryable": True, "replicateable": True, "label": f"{name}s"} | traits
        with self._lock:
            self._db.execute(f'DROP TABLE IF EXISTS "{name}"')
            self._db.execute(f'CREATE TABLE "{name}" ({", ".join(each.column for each in self.objects[name].values())})')

    def add(self, name: str, number: int, stamp: str, **values: Any) -> str:
        """Puts a record in, or in the place of the one with that number. Returns its Id."""
        key = record_id(number)
        row = {"Id": key, "IsDeleted": False, "SystemModstamp": stamp, **values}
        with self._lock:
            self._db.execute(f'DELETE FROM "{name}" WHERE "Id" = ?', (key,))
            columns = ", ".join(f'"{column}"' for column in row)
            stored = [self._stored(self.objects[name][column], value) for column, value in row.items()]
            self._db.execute(f'INSERT INTO "{name}" ({columns}) VALUES ({", ".join("?" * len(row))})', stored)
        return key

    def drop(self, name: str, number: int) -> None:
        """Deletes a record for good: it is not even in the recycle bin."""
        with self._lock:
            self._db.execute(f'DELETE FROM "{name}" WHERE "Id" = ?', (record_id(number),))

    def gain(self, name: str, added: StubField) -> None:
        self.objects[name][added.name] = added
        with self._lock:
            self._db.execute(f'ALTER TABLE "{name}" ADD COLUMN {added.column}')

    # --- what it answers ---------------------------------------------------------------------------------------------

    def query(self, soql: str, *, deleted: bool) -> dict[str, Any]:
        self.asked.append(soql)
        asked = Parser(soql, self.objects).query()
        hidden = "" if deleted or "IsDeleted" not in self.objects[asked.source] else ' AND "IsDeleted" = 0'
        source = asked.sql if " WHERE " in asked.sql else f"{asked.sql} WHERE true"
        limit = "" if asked.limit is None else f" LIMIT {asked.limit}"
        with self._lock:
            rows = self._db.execute(f'SELECT "Id" FROM {source}{hidden}{asked.order}{limit}', asked.values).fetchall()
        if not asked.names:
            return {"totalSize": len(rows), "done": True, "records": []}
        answer = self._batch(asked.source, asked.names, [key for (key,) in rows], 0)
        if self.after_query:
            self.after_query()
        return answer

    def more(self, locator: str) -> dict[str, Any]:
        name, _, start = locator.rpartition("-")
        if name not in self._locators:
            raise SoqlRefused("INVALID_QUERY_LOCATOR", "invalid query locator")
        if self.before_batch:
            self.before_batch()
        return self._batch(*self._locators[name], int(start), name)

    def _batch(self, source: str, names: list[str], keys: list[str], start: int, locator: str = "") -> dict[str, Any]:
        """A batch holds what is still there of its records, as they are now."""
        fields = [self.objects[source][name] for name in names]
        columns = ", ".join(f'"{name}"' for name in names)
        records = []
        for key in keys[start : start + self.batch]:
            with self._lock:
                row = self._db.execute(f'SELECT {columns} FROM "{source}" WHERE "Id" = ?', (key,)).fetchone()
            if row is not None:
                told = {each.name: self._told(each, value, source, key) for each, value in zip(fields, row, strict=True)}
                records.append({"attributes": {"type": source, "url": f"{ROOT}sobjects/{source}/{key}"}, **told})
        answer: dict[str, Any] = {"totalSize": len(keys), "done": start + self.batch >= len(keys), "records": records}
        if not answer["done"]:
            locator = locator or f"01g{secrets.token_hex(6)}"
            self._locators[locator] = (source, names, keys)
            answer["nextRecordsUrl"] = f"{ROOT}query/{locator}-{start + self.batch}"
        return answer

    def _stored(self, of: StubField, value: Any) -> Any:
        if value is None or of.type not in ("datetime", "anyType", "location", "address"):
            return value
        return as_stored(value) if of.type == "datetime" else json.dumps(value)

    def _told(self, of: StubField, value: Any, source: str, key: str) -> Any:
        if value is None:
            return None
        if of.type == "datetime":
            return value.replace("Z", "+0000")
        if of.type == "boolean":
            return bool(value)
        if of.type == "base64":
            return f"{ROOT}sobjects/{source}/{key}/{of.name}"
        return json.loads(value) if of.type in ("anyType", "location", "address") else value

    def listed(self) -> dict[str, Any]:
        return {"sobjects": [{"name": name, **traits} for name, traits in self.traits.items()]}

    def described(self, name: str) -> dict[str, Any]:
        shown = [
            {"name": each.name, "type": each.type, "nillable": each.nillable, "filterable": each.filterable}
            | {"sortable": each.sortable, "precision": 0, "scale": 0, "calculated": False, **each.more}
            for each in self.objects[name].values()
        ]
        return {"name": name, **self.traits[name], "fields": shown}

    def token(self, form: dict[str, str], basic: str) -> dict[str, str] | None:
        """OAuth by password, by a signed assertion, or by the consumer alone; None if it does not hold."""
        kind = form.get("grant_type", "")
        if kind == "password":
            proof = (form["password"], form["client_id"], form["client_secret"])
            known = self.logins.get(form["username"]) == proof
        elif kind == "client_credentials":
            consumer, _, secret = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
            known = self.logins.get(consumer) == secret
        else:
            told = jwt.decode(form["assertion"], options={"verify_signature": False})
            known = self._signed(form["assertion"], self.logins.get(told["sub"]), told["aud"])
        return {"access_token": self.session_id, "instance_url": f"https://{self.host}"} if known else None

    def _signed(self, assertion: str, public: Any, audience: str) -> bool:
        try:
            jwt.decode(assertion, public, algorithms=["RS256"], audience=audience)
        except jwt.PyJWTError:
            return False
        return True


def record_id(number: int) -> str:
    """Ids are case-sensitive, and sort by code point: digits, capitals, small letters."""
    letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    text = ""
    for _ in range(12):
        number, place = divmod(number, 62)
        text = letters[place] + text
    return f"001{text}AAA"


# --- the server --------------------------------------------------------------------------------------------------------


@contextmanager
def salesforce_stub(folder: Path) -> Iterator[SalesforceStub]:
    """Serves on 127.0.0.1 with a certificate of its own, and a proxy that leads every host there."""
    stub = SalesforceStub()
    stub.ca_file = str(folder / "authority.pem")
    context = _certificates(folder)
    stopped = threading.Event()

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def get_request(self) -> tuple[Any, Any]:
            connection, address = super().get_request()
            return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

        def handle_error(self, *_: object) -> None:
            """Clients that do not trust the certificate, or do not wait, are what tests are about."""

    class Proxy(ThreadingTCPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), _handler_for(stub, stopped))
    proxy = Proxy(("127.0.0.1", 0), _tunnel_to(server.server_port))
    stub.host = f"127.0.0.1:{server.server_port}"
    stub.proxy = f"http://127.0.0.1:{proxy.server_address[1]}"
    threads = [threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.02}) for each in (server, proxy)]
    for thread in threads:
        thread.start()
    try:
        yield stub
    finally:
        stopped.set()
        for each, thread in zip((server, proxy), threads, strict=True):
            each.shutdown()
            thread.join()
            each.server_close()


def _handler_for(stub: SalesforceStub, stopped: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            stub.paths.append(self.path)
            if self._failed():
                return
            if len(self.path) + len(str(self.headers)) > LONGEST_HEAD:
                self._answer(414, "<h1>Bad Message 414</h1><pre>reason: URI Too Long</pre>")
            elif self.headers.get("Authorization") != f"Bearer {stub.session_id}":
                self._refuse(401, "INVALID_SESSION_ID", "Session expired or invalid")
            elif stub.used >= stub.limit:
                self._refuse(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.")
            else:
                stub.used += 1
                try:
                    self._resource()
                except SoqlRefused as refused:
                    self._refuse(400, refused.code, str(refused))

        def do_POST(self) -> None:
            stub.paths.append(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            if self._failed():
                return
            if self.path == "/services/oauth2/token":
                form = {name: values[0] for name, values in parse_qs(body).items()}
                granted = stub.token(form, self.headers.get("Authorization", ""))
                refused = {"error": "invalid_grant", "error_description": "authentication failure"}
                self._answer(200 if granted else 400, granted or refused)
            elif self.path == f"/services/Soap/u/{VERSION}":
                self._soap_login(body)
            else:
                self._refuse(404, "NOT_FOUND", "The requested resource does not exist")

        def _soap_login(self, body: str) -> None:
            login = {each.tag.rpartition("}")[2]: each.text for each in ElementTree.fromstring(body).iter()}
            if login["username"] in stub.logins and stub.logins[login["username"]] == login["password"]:
                told = f"<sessionId>{stub.session_id}</sessionId><serverUrl>https://{stub.host}/services/Soap</serverUrl>"
                self._answer(200, f"<env>{told}</env>", "text/xml")
            else:
                words = escape(f"Invalid username, password, security token: {login['password']}")
                fault = (
                    f"<sf:exceptionCode>INVALID_LOGIN</sf:exceptionCode><sf:exceptionMessage>{words}</sf:exceptionMessage>"
                )
                self._answer(500, f'<env xmlns:sf="urn:fault">{fault}</env>', "text/xml")

        def _resource(self) -> None:
            parts = urlsplit(self.path)
            if not parts.path.startswith(ROOT):
                self._refuse(404, "NOT_FOUND", "The requested resource does not exist")
                return
            match parts.path.removeprefix(ROOT).strip("/").split("/"):
                case [""]:
                    self._answer(200, {"sobjects": f"{ROOT}sobjects", "query": f"{ROOT}query"})
                case ["sobjects"]:
                    self._answer(200, stub.listed())
                case ["sobjects", name, "describe"] if name in stub.objects:
                    self._answer(200, stub.described(name))
                case [("query" | "queryAll") as which]:
                    self._answer(200, stub.query(parse_qs(parts.query)["q"][0], deleted=which == "queryAll"))
                case [("query" | "queryAll"), locator]:
                    self._answer(200, stub.more(locator))
                case _:
                    self._refuse(404, "NOT_FOUND", "The requested resource does not exist")

        def _failed(self) -> bool:
            fault = next((each for each in stub.faults if each.times and re.search(each.path, self.path)), None)
            if fault is None:
                return False
            fault.times -= 1
            if fault.instead == "answer":
                self._answer(fault.status, fault.content, headers=fault.headers)
            else:
                self.close_connection = True
                if fault.instead == "hang":
                    stopped.wait(30)
            return True

        def _refuse(self, status: int, code: str, words: str) -> None:
            # As Salesforce does, with the query in it.
            self._answer(status, [{"errorCode": code, "message": f"{words} in {self.path}"}])

        def _answer(
            self, status: int, body: Any, kind: str = "application/json", headers: dict[str, str] | None = None
        ) -> None:
            content = (
                body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
            )
            own = {"Date": format_datetime(stub.clock(), usegmt=True), "Content-Type": kind}
            own |= {"Sforce-Limit-Info": f"api-usage={stub.used}/{stub.limit}", "Content-Length": str(len(content))}
            self.send_response_only(status)
            for name, value in (own | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


def _tunnel_to(port: int) -> type[StreamRequestHandler]:
    class Tunnel(StreamRequestHandler):
        """A proxy for HTTPS, as companies have one: CONNECT, and then bytes in both directions."""

        def handle(self) -> None:
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with create_connection(("127.0.0.1", port)) as behind:
                back = threading.Thread(target=_copy, args=(behind, self.connection), daemon=True)
                back.start()
                _copy(self.connection, behind)

    return Tunnel


def _copy(source: socket, target: socket) -> None:
    try:
        while content := source.recv(65_536):
            target.sendall(content)
    except OSError:
        """One of them hung up."""


def _certificates(folder: Path) -> ssl.SSLContext:
    """A private authority, and a certificate of it for this machine and for the hosts of Salesforce."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tidemark's tests")])
    names = [x509.DNSName("*.salesforce.com"), x509.DNSName("*.my.salesforce.com")]
    address = x509.SubjectAlternativeName([*names, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stub")])
    root = _signed(authority, keys[0], authority, keys[0], x509.BasicConstraints(True, None))
    leaf = _signed(server, keys[1], authority, keys[0], x509.BasicConstraints(False, None), address)
    (folder / "authority.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    private = keys[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
    for each in extensions:
        builder = builder.add_extension(each, critical=isinstance(each, x509.BasicConstraints))
    # Newer Pythons insist on these.
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
    builder = builder.add_extension(known, critical=False)
    if issuer == subject:
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
        )
        sign = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **usage)
        builder = builder.add_extension(sign, critical=True)
    return builder.sign(by, hashes.SHA256())
