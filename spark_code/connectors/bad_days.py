"""The fault list of the test kit: what a source does on bad days, done by a proxy in front of the real one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tidemark.connectors.contract import CheckpointConnector, Connector, Window
from tidemark.connectors.proxy import WEB_PAGE, Answered, CutBody, CutGzip, Fault, FaultProxy, Reset, TcpProxy
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import TidemarkError

HTTP_FAULTS: dict[str, Fault] = {
    "401": Answered(401), "403": Answered(403), "404": Answered(404), "429": Answered(429, headers={"Retry-After": "0"}),
    "500": Answered(500), "503": Answered(503), "reset": Reset(), "a web page": WEB_PAGE, "gzip cut short": CutGzip(),
    "body cut short": CutBody(),
}  # fmt: skip
# Bytes of a server's answers after which its connections are reset.
TCP_FAULTS = {"reset at once": 0, "reset in its greeting": 40, "reset in its answers": 2000}
PASSING = ("500", "reset", "a web page", "gzip cut short", "429")
DEFAULT_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
MANY = 100


@contextmanager
def behind_proxy(settings: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], FaultProxy | TcpProxy] | None]:
    """The settings with an address that leads through a proxy, and the proxy. None if the source has no such address."""
    parts = urlsplit(str(settings.get("url", "")))
    if parts.scheme == "http" and parts.hostname:
        with FaultProxy(f"http://{parts.netloc}") as proxy:
            yield dict(settings) | {"url": urlunsplit(parts._replace(netloc=urlsplit(proxy.url).netloc))}, proxy
    elif parts.scheme in DEFAULT_PORTS and parts.hostname:
        with TcpProxy(parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme]) as tcp:
            login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
            yield dict(settings) | {"url": urlunsplit(parts._replace(netloc=f"{login}127.0.0.1:{tcp.port}"))}, tcp
    else:
        yield None


def lasting_faults(proxy: FaultProxy | TcpProxy) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each fault by name, and what makes it last."""
    if isinstance(proxy, FaultProxy):
        for name, fault in HTTP_FAULTS.items():
            yield name, lambda fault=fault: proxy.plan(*[fault] * MANY)  # type: ignore[misc]
    else:
        for name, limit in TCP_FAULTS.items():
            yield name, lambda limit=limit: proxy.bad.extend([limit] * MANY)  # type: ignore[misc]


def passing_faults(proxy: FaultProxy | TcpProxy) -> None:
    """One of each fault that passes, one after the other."""
    if isinstance(proxy, FaultProxy):
        proxy.plan(*(HTTP_FAULTS[name] for name in PASSING))
    else:
        proxy.bad += list(TCP_FAULTS.values())


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
