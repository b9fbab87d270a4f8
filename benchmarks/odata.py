"""How near the kind `odata` comes to the time that the same requests take without any client.

    python -m benchmarks.odata [records] [page size]

A CAP server, a proxy that makes every request 20 ms later, two slices read by two processes at once. The ideal is the
same requests, sent by two processes that read the answers and throw them away.
"""

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.machine import described
from tests.services.cap import cap
from tidemark.connectors.contract import Slice, fixed_window
from tidemark.connectors.kinds.odata import ODataConnector
from tidemark.connectors.proxy import FaultProxy
from tidemark.connectors.stream import StreamSpec

DELAY_MS = 20
ROUNDS = 5
ORDERS = StreamSpec.model_validate({"id": "shop.orders", "source": "Orders", "key": ["id"], "cursor": "updated_at"})
FILL = """INSERT INTO data_Orders (id, updated_at, item, price, quantity, paid, weight)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {records})
SELECT i, strftime('%Y-%m-%dT%H:%M:%fZ', 1735689600 + i / 3.0, 'unixepoch'), 'item number ' || i, i % 1000 + 0.25, i % 7,
    i % 2, i / 8.0 FROM n"""


def in_front_of(upstream: str, pipe: Connection) -> None:
    with FaultProxy(upstream, DELAY_MS) as proxy:
        pipe.send(proxy.url)
        pipe.recv()


def read(url: str, slice: Slice, page_size: int, ready: Any, out: Any) -> None:
    """Reads a slice; returns the requests, the records, and the processor's time in all."""
    connector = ODataConnector({"url": url}, {})
    connector.discover(ORDERS)
    sent: list[str] = []
    source = connector._http()
    answer = source._answer
    source._answer = lambda url, *rest: (sent.append(url), answer(url, *rest))[1]  # type: ignore[method-assign]
    ready.wait()
    began, busy = time.perf_counter(), time.process_time()
    records = sum(page.num_rows for page in connector.read(ORDERS, slice, page_size))
    out.put((sent, records, time.process_time() - busy, time.perf_counter() - began))


def replay(urls: list[str], ready: Any, out: Any) -> None:
    import http.client

    connection = http.client.HTTPConnection(urlsplit(urls[0]).netloc)
    connection.connect()
    ready.wait()
    began, busy = time.perf_counter(), time.process_time()
    for url in urls:
        connection.request("GET", url[url.index("/", 8) :], headers={"Accept": "application/json;IEEE754Compatible=true"})
        connection.getresponse().read()
    out.put((urls, 0, time.process_time() - busy, time.perf_counter() - began))


def both(work: Callable[..., None], arguments: list[tuple[Any, ...]]) -> tuple[float, list[Any]]:
    """Seconds that two processes need, begun at the same moment."""
    ready, out = multiprocessing.Barrier(len(arguments) + 1), multiprocessing.Queue()  # type: ignore[var-annotated]
    processes = [multiprocessing.Process(target=work, args=(*each, ready, out)) for each in arguments]
    for each in processes:
        each.start()
    ready.wait()
    done = [out.get() for _ in processes]
    for each in processes:
        each.join()
    return max(seconds for *_, seconds in done), done


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    page_size = int(sys.argv[2]) if len(sys.argv) > 2 else ODataConnector.default_page
    print(described())
    with cap(Path(tempfile.mkdtemp()) / "cap") as server:
        server.execute(FILL.format(records=records), "CREATE INDEX by_time ON data_Orders (updated_at, id)")
        here, there = multiprocessing.Pipe()
        proxy = multiprocessing.Process(target=in_front_of, args=(server.url, there))
        proxy.start()
        url = str(here.recv()) + urlsplit(server.shop).path
        with ODataConnector({"url": url}, {}) as connector:
            slices = connector.slices(ORDERS, fixed_window(ORDERS, None, connector.now(ORDERS)), 2)
        taken: list[float] = []
        alone: list[float] = []
        for _ in range(ROUNDS):
            seconds, done = both(read, [(url, each, page_size) for each in slices])
            ideal, bare = both(replay, [(sent,) for sent, *_ in done])
            pages = sum(len(sent) for sent, *_ in done)
            busy = sum(each[2] for each in done) - sum(each[2] for each in bare)
            taken, alone = [*taken, seconds], [*alone, ideal]
            print(
                f"{sum(each[1] for each in done):,} records, {len(slices)} slices, {pages} pages: {seconds:.2f} s, the same "
                f"requests alone {ideal:.2f} s; the client's own {busy / pages * 1000:.1f} ms of processor a page"
            )
        print(f"{min(alone) / min(taken):.0%} of the ideal, by the quickest of {ROUNDS} rounds each")
        here.send("end")
        proxy.join()


if __name__ == "__main__":
    main()
