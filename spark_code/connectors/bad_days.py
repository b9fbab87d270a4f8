"""The fault list of the test kit: what a source does on bad days, done by a proxy in front of the real one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tidemark.connectors.contract import CheckpointConnector, Connector, Window
from tidemark.connectors.proxy import WEB_PAGE, Answered, CutBody, CutGzip, Fault, FaultProxy, Reset
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.tcp_proxy import tcp_proxy
from tidemark.errors import TidemarkError

HTTP_FAULTS: dict[str, Fault] = {
    "401": Answered(401), "403": Answered(403), "404": Answered(404), "429": Answered(429, headers={"Retry-After": "0"}),
    "500": Answered(500), "503": Answered(503), "reset": Reset(), "a web page": WEB_PAGE, "gzip cut short": CutGzip(),
    "body cut short": CutBody(),
}  # fmt: skip
# Bytes of a server's answers after which its connections are reset.
TCP_FAULTS = {"reset at once": 0, "reset in its greeting": 40, "reset in its answers": 500}
PASSING = ("500", "reset", "a web page", "gzip cut short", "429")
DEFAULT_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
MANY = 100


def faults_of(settings: Mapping[str, Any]) -> list[str]:
    """Names of the faults that a proxy can do in front of this source; none if it has no such address."""
    scheme = urlsplit(str(settings.get("url", ""))).scheme
    return list(HTTP_FAULTS if scheme == "http" else TCP_FAULTS if scheme in DEFAULT_PORTS else ())


@contextmanager
def behind_proxy(settings: Mapping[str, Any], fault: str | None) -> Iterator[dict[str, Any]]:
    """The settings with an address that leads through a proxy. The fault lasts; without one, each that passes comes once."""
    parts = urlsplit(settings["url"])
    if parts.scheme == "http":
        with FaultProxy(f"http://{parts.netloc}") as proxy:
            proxy.plan(*([HTTP_FAULTS[fault]] * MANY if fault else [HTTP_FAULTS[name] for name in PASSING]))
            yield dict(settings) | {"url": urlunsplit(parts._replace(netloc=urlsplit(proxy.url).netloc))}
    else:
        resets = [TCP_FAULTS[fault]] * MANY if fault else list(TCP_FAULTS.values())
        with tcp_proxy(parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme], resets) as proxy:
            login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
            yield dict(settings) | {"url": urlunsplit(parts._replace(netloc=f"{login}127.0.0.1:{proxy.port}"))}


def error_of(connector: Connector, stream: StreamSpec) -> TidemarkError | None:
    """The named error that reading the stream's first page ends in; None if there is none. Any other is let through."""
    try:
        with connector:
            connector.discover(stream)
            if isinstance(connector, CheckpointConnector):
                connector.pending(stream, None, 1)
                return None
            connector.now(stream)
            for slice in connector.slices(stream, Window(), 1):
                for _ in connector.read(stream, slice, 100):
                    break
    except TidemarkError as error:
        return error
    return None
