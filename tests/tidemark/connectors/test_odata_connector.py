"""Entity sets of a real CAP server, and what goes wrong on the way to one. No Spark."""

import json
import logging
import pickle
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.services.cap import CapServer
from tests.services.http_proxy import WEB_PAGE, Answered, CutBody, CutGzip, FaultProxy, Late, Reset
from tidemark.connectors import http
from tidemark.connectors.contract import Slice, Window, fixed_window
from tidemark.connectors.kinds import odata
from tidemark.connectors.kinds.odata import ODataConnector
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SourceError, SourceRefused, SourceUnreachable

pytestmark = pytest.mark.service

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)


class Shop:
    """The server with its tables empty, and a proxy in front of it."""

    def __init__(self, server: CapServer, proxy: FaultProxy) -> None:
        self.server, self.proxy = server, proxy
        self.connector = ODataConnector({"url": f"{proxy.url}/odata/v4/shop"}, {})

    def put(self, *orders: tuple[int, str | None]) -> None:
        """Orders by id and the text of their time."""
        rows = ", ".join(f"({id}, {sql(moment)}, 'item {id}', {id}.5, {id % 3}, true, 0.25)" for id, moment in orders)
        self.server.execute(
            f"INSERT INTO data_Orders (id, updated_at, item, price, quantity, paid, weight) VALUES {rows} "
            "ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at"
        )

    def thing(self, **fields: Any) -> None:
        answer = httpx.post(f"{self.server.shop}/Things", json={"part": 1, **fields})
        assert answer.status_code == 201, answer.text

    def read(self, stream: StreamSpec, page_size: int = 10, window: Window | None = None) -> list[Any]:
        """The keys of a window's records, as they come."""
        if window is None:
            window = fixed_window(stream, None, self.connector.now(stream))
        keys: list[Any] = []
        schema = self.connector.discover(stream)
        for slice in self.connector.slices(stream, window, 2):
            for page in self.connector.read(stream, slice, page_size):
                assert 0 < page.num_rows <= page_size
                assert page.schema == schema
                keys += page[stream.key[0]].to_pylist()
        return keys

    def asked_for(self) -> list[str]:
        return [path for path in self.proxy.seen if "/Orders?" in path or "/FewOrders?" in path]


def sql(moment: str | None) -> str:
    return "NULL" if moment is None else f"'{moment}'"


def second(n: float) -> str:
    return (NEW_YEAR + timedelta(seconds=n)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def orders(source: str = "Orders", **words: Any) -> StreamSpec:
    return StreamSpec.model_validate({"id": "shop.orders", "source": source, "key": ["id"], "cursor": "updated_at", **words})


def things(**words: Any) -> StreamSpec:
    return StreamSpec.model_validate({"id": "shop.things", "source": "Things", "key": ["code", "part"], **words})


def since(stream: StreamSpec, cursor: Any, upper: Any = None, *, closed: bool = False) -> Window:
    return Window(stream.parse_cursor(cursor), None if upper is None else stream.parse_cursor(upper), closed)


@pytest.fixture
def shop(cap_server: CapServer) -> Iterator[Shop]:
    cap_server.execute("DELETE FROM data_Orders", "DELETE FROM data_Things")
    with FaultProxy(cap_server.url) as proxy:
        shop = Shop(cap_server, proxy)
        with shop.connector:
            yield shop


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the source made the client wait, in seconds; nobody waits."""
    waited: list[float] = []
    monkeypatch.setattr(http.HttpSource.__init__, "__kwdefaults__", {"timeout": 60.0, "sleep": waited.append})
    return waited


# --- what the source has -----------------------------------------------------------------------------------------------


def test_entity_sets_are_streams_with_their_keys_and_timestamps(shop: Shop) -> None:
    found = {each.source: (each.key, each.cursors) for each in shop.connector.streams()}
    assert found == {
        "FewOrders": (("id",), ("updated_at",)),
        "FineOrders": (("id",), ("updated_at",)),
        "Orders": (("id",), ("updated_at",)),
        "Things": (("code", "part"), ("second", "instant")),
    }


def test_every_type_arrives_as_what_it_is(shop: Shop) -> None:
    given = {
        "ref": "8c2b0a2e-0000-4000-8000-000000000001", "big": "9007199254740993", "small": -3, "tiny": 255,
        "amount": "1234567.123456", "free": "1.5", "ratio": 0.1, "flag": True, "day": "2025-02-03", "clock": "12:13:14",
        "second": "2025-01-01T00:00:00Z", "instant": "2025-01-01T00:00:00.123Z", "content": "AP8Q-_8=",
        "address_city": "Bern", "address_zip": None, "tags": ["x", "y"], "places": [{"city": "Rom", "zip": "1"}],
    }  # fmt: skip
    shop.thing(code="a", **given)
    shop.thing(code="b")
    (page,) = shop.connector.read(things(), Slice(0), 10)
    assert page.schema == shop.connector.discover(things())
    assert page.to_pylist()[0] == {
        "code": "a", "part": 1, **given, "big": 9007199254740993, "amount": Decimal("1234567.123456"),
        "day": date(2025, 2, 3), "second": NEW_YEAR,
        "instant": NEW_YEAR + timedelta(milliseconds=123), "content": b"\x00\xff\x10\xfb\xff",
    }  # fmt: skip
    assert {name: value for name, value in page.to_pylist()[1].items() if value not in (None, [])} == {
        "code": "b",
        "part": 1,
    }


def test_fields_are_asked_anew_each_time(shop: Shop) -> None:
    shop.connector.discover(orders())
    with_one_more = httpx.get(f"{shop.server.shop}/$metadata").text.replace(
        '<Property Name="item"', '<Property Name="new" Type="Edm.Guid"/><Property Name="item"'
    )
    shop.proxy.plan(Answered(200, with_one_more.encode(), {"Content-Type": "application/xml"}), on="$metadata")
    assert "new" in shop.connector.discover(orders()).names


def test_a_missing_entity_set_or_field_is_named(shop: Shop) -> None:
    with pytest.raises(SourceError, match=r"has no entity set 'Nothing'. It has: FewOrders, FineOrders, Orders, Things"):
        shop.connector.discover(orders("Nothing"))
    with pytest.raises(SourceError, match=r"'Orders' has no field 'changed'. It has: id, updated_at"):
        shop.connector.now(orders(cursor="changed"))
    with pytest.raises(
        ConfigError, match=r"the cursor 'item' is Edm.String, which cannot be a cursor of the type timestamp"
    ):
        shop.connector.now(orders(cursor="item"))
    with pytest.raises(ConfigError, match=r"the cursor 'free' is Edm.Decimal without a fixed scale"):
        shop.connector.now(things(cursor="free", cursor_type="decimal"))


# --- the upper end -----------------------------------------------------------------------------------------------------


def test_the_present_is_the_clock_of_the_source(shop: Shop) -> None:
    shop.proxy.plan(Answered(200, b'{"value":[]}', {"Date": "Wed, 01 Jan 2025 00:00:59 GMT"}), on="/Orders?")
    assert str(shop.connector.now(orders())) == "2025-01-01T00:00:59Z"
    shop.proxy.plan(Answered(200, b'{"value":[]}'), on="/Orders?")
    with pytest.raises(SourceError, match="no header `Date`"):
        shop.connector.now(orders())
    present = shop.connector.now(orders(cursor=["updated_at", "id"], cursor_type=["timestamp", "integer"]))
    assert present is not None
    assert len(present.parts) == 1
    assert present.parts[0].timestamp is not None
    assert abs(present.parts[0].timestamp.instant / 1e9 - time.time()) < 5


def test_the_present_of_anything_else_is_its_greatest_value(shop: Shop) -> None:
    by_id = orders(cursor="id", cursor_type="integer")
    assert shop.connector.now(by_id) is None
    assert shop.connector.now(orders(cursor=None)) is None
    shop.put((9, second(1)), (10, second(0)))
    assert str(shop.connector.now(by_id)) == "10"
    both = shop.connector.now(orders(cursor=["quantity", "id"], cursor_type="integer"))
    assert str(both) == '["1","10"]'
    assert shop.read(by_id) == [9, 10]  # the greatest is inside


# --- the seed's four rules ---------------------------------------------------------------------------------------------


def test_it_respects_the_input_state_and_reads_nothing_older(shop: Shop) -> None:
    shop.put(*((n, second(n)) for n in range(30)))
    stream = orders()
    assert shop.read(stream, window=since(stream, second(20), second(25))) == [20, 21, 22, 23, 24]
    assert shop.connector.count(stream, since(stream, second(20), second(25))) == 5


def test_it_returns_the_maximum_cursor_over_all_pages(shop: Shop) -> None:
    shop.put(*((n, second(100 - n)) for n in range(30)))
    stream = orders()
    seen = [
        moment
        for slice in shop.connector.slices(stream, fixed_window(stream, None, shop.connector.now(stream)), 2)
        for page in shop.connector.read(stream, slice, 7)
        for moment in page["updated_at"].to_pylist()
    ]
    assert seen == sorted(seen)
    assert seen[-1] == NEW_YEAR + timedelta(seconds=100)


def test_reading_a_window_twice_gives_the_same_records(shop: Shop) -> None:
    shop.put(*((n, second(n // 4)) for n in range(40)))
    slice = Slice(0, upper="2025-06-01T00:00:00Z")
    first, again = (pa.Table.from_batches(shop.connector.read(orders(), slice, size)) for size in (7, 100))
    assert first.combine_chunks() == again.combine_chunks()
    assert first.num_rows == 40


def test_a_safety_window_reads_the_records_before_the_state_again(shop: Shop) -> None:
    shop.put(*((n, second(n)) for n in range(30)))
    stream = orders(safety_window="PT5S")
    window = fixed_window(stream, stream.parse_cursor(second(20)), stream.parse_cursor(second(22)))
    assert shop.read(stream, window=window) == [15, 16, 17, 18, 19, 20, 21]


# --- pages -------------------------------------------------------------------------------------------------------------


def test_a_tie_larger_than_a_page_is_read_completely(shop: Shop) -> None:
    moments = [*(second(0),) * 3, *(second(1),) * 25, *(second(2),) * 6, *(second(3),) * 4, *(second(4),) * 11]
    shop.put(*enumerate(moments))
    for size in (2, 5, 10, 25, 48, 49, 50):
        assert shop.read(orders(), size) == list(range(49)), size


def test_times_finer_than_the_server_compares_are_read_once_each(shop: Shop) -> None:
    # CAP cuts the literals of a filter to milliseconds. Within one, the order of times is not that of keys.
    moments = [f"2025-01-01T00:00:00.{n // 15:03}Z{999 - n:03}" for n in range(60)]
    shop.put(*enumerate(moments))
    stream = orders("FineOrders")
    for size in (4, 10, 16, 31):
        assert sorted(shop.read(stream, size)) == list(range(60)), size
    fine = since(stream, "2025-01-01T00:00:00.001980Z", "2025-01-01T00:00:00.002960Z")
    assert sorted(shop.read(stream, 10, fine)) == [*range(15, 20), *range(40, 45)]


def test_a_record_at_a_bound_is_neither_lost_nor_read_twice(shop: Shop) -> None:
    shop.put((1, second(0)), (2, second(0.001)), (3, second(0.002)), (4, second(1)))
    stream = orders()
    for lower in ("2025-01-01T00:00:00.001Z", "2025-01-01T01:00:00.001+01:00", "2025-01-01T00:00:00.0010Z"):
        assert shop.read(stream, window=since(stream, lower, "2025-01-01T00:00:01Z")) == [2, 3]
    assert shop.read(stream, window=since(stream, "2025-01-01T00:00:00.0011Z", second(1))) == [3]
    assert shop.read(stream, window=since(stream, second(0), "2025-01-01T00:00:00.0011Z")) == [1, 2]
    # Without a fraction in the field, and with one in the bound.
    for n in range(3):
        shop.thing(code=f"c{n}", second=f"2025-01-01T00:00:0{n}Z")
    whole = things(cursor="second")
    assert shop.read(whole, window=since(whole, "2025-01-01T00:00:00.5Z", "2025-01-01T00:00:02Z")) == ["c1"]
    assert shop.read(whole, 1, since(whole, "2025-01-01T00:00:00Z", "2025-01-01T00:00:01.5Z")) == ["c0", "c1"]


def test_a_page_that_the_server_cuts_short_goes_on_by_keyset(shop: Shop) -> None:
    shop.put(*((n, second(n // 3)) for n in range(50)))
    assert shop.read(orders("FewOrders"), 20) == list(range(50))
    assert shop.read(orders("FewOrders", cursor=None), 20) == list(range(50))
    assert len(shop.asked_for()) > 15
    assert not any("skiptoken" in path for path in shop.proxy.seen)


def test_records_that_move_while_pages_are_read_hide_no_other(shop: Shop) -> None:
    shop.put(*((n, second(n)) for n in range(30)))
    seen: list[int] = []
    for page in shop.connector.read(orders(), Slice(0, upper="2025-06-01T00:00:00Z"), 10):
        seen += page["id"].to_pylist()
        if len(seen) < 10:
            shop.put((0, "2025-07-01T00:00:00.000Z"), (1, "2025-07-01T00:00:00.000Z"))
            shop.server.execute("DELETE FROM data_Orders WHERE id IN (2, 3)")
    assert seen == list(range(30))


def test_an_empty_page_with_a_link_is_not_the_end(shop: Shop) -> None:
    shop.put((1, second(1)), (2, second(2)))
    empty = {"value": [], "@odata.nextLink": "Orders?$orderby=updated_at,id"}
    shop.proxy.plan(Answered(200, json.dumps(empty).encode()), on="/Orders?")
    (page,) = shop.connector.read(orders(), Slice(0), 10)
    assert page["id"].to_pylist() == [1, 2]
    elsewhere = {"value": [], "@odata.nextLink": "http://elsewhere.example/Orders"}
    shop.proxy.plan(Answered(200, json.dumps(elsewhere).encode()), on="/Orders?")
    with pytest.raises(SourceError, match="links to another server"):
        list(shop.connector.read(orders(), Slice(0), 10))


def test_a_source_that_sends_more_than_was_asked_for_makes_no_larger_page(shop: Shop) -> None:
    record = {"updated_at": second(0)}
    body = json.dumps({"value": [{"id": n, **record} for n in range(25)]}).encode()
    shop.proxy.plan(*(Answered(200, body),) * 2, on="/Orders?")
    pages = shop.connector.read(orders(cursor=None), Slice(0), 10)
    assert [next(pages).num_rows for _ in range(3)] == [10, 10, 5]


def test_a_source_that_does_not_sort_or_filter_is_told_and_does_not_run_for_ever(shop: Shop) -> None:
    def answered(*moments: float) -> Answered:
        rows = [{"id": n, "updated_at": second(moment), "quantity": moment} for n, moment in enumerate(moments)]
        return Answered(200, json.dumps({"value": rows}).encode())

    shop.proxy.plan(Answered(200, b'{"value":[{"id":1,"updated_at":null}]}'), on="/Orders?")
    with pytest.raises(SourceError, match=r"does not obey"):
        list(shop.connector.read(orders(), Slice(0), 1))
    shop.proxy.plan(answered(2, 1), on="/Orders?")
    with pytest.raises(SourceError, match=r"does not obey \$orderby=updated_at"):
        list(shop.connector.read(orders(), Slice(0), 2))
    shop.proxy.plan(*(answered(0, 1, 2),) * 3, on="/Orders?")
    with pytest.raises(SourceError, match=r"does not obey \$filter"):
        list(shop.connector.read(orders(), Slice(0, lower=second(50)), 3))
    shop.proxy.plan(*(answered(0, 0),) * 2, on="/Orders?")
    with pytest.raises(SourceError, match=r"does not obey \$filter"):
        list(shop.connector.read(orders(cursor=None), Slice(0), 2))
    shop.proxy.plan(answered(1, 2), on="/Orders?")
    with pytest.raises(SourceError, match=r"does not obey \$filter"):
        list(shop.connector.read(orders(cursor="quantity", cursor_type="integer"), Slice(0, lower="2"), 10))


# --- cursors -----------------------------------------------------------------------------------------------------------


def test_records_without_a_cursor_are_a_slice_of_their_own(shop: Shop) -> None:
    shop.put((1, second(1)), *((n, None) for n in range(5, 30)), (2, second(2)))
    everything = [1, 2, *range(5, 30)]
    assert shop.read(orders(null_cursor="include")) == everything
    assert shop.read(orders()) == everything  # `fail`: the platform stops at the first of them
    assert shop.read(orders(null_cursor="exclude")) == [1, 2]
    assert shop.connector.count(orders(), Window()) == 2
    both = orders(cursor=["updated_at", "id"], cursor_type=["timestamp", "integer"], null_cursor="include")
    assert shop.read(both) == everything
    shop.server.execute("DELETE FROM data_Orders WHERE updated_at IS NULL")
    assert [slice.nulls for slice in shop.connector.slices(orders(), Window(), 2)] == [False]


@pytest.mark.parametrize("size", [5, 100])
def test_numbers_texts_days_and_several_fields_are_cursors(shop: Shop, size: int) -> None:
    rows = (
        f"('it''s {n:02}', 1, {n // 5}, {n // 4}.5, {n / 8}, '2025-01-{n // 6 + 1:02}', '00:00:{n:02}')" for n in range(24)
    )
    shop.server.execute(f"INSERT INTO data_Things (code, part, big, amount, ratio, day, clock) VALUES {', '.join(rows)}")
    codes = [f"it's {n:02}" for n in range(24)]
    for fields, types, lower, upper, first, behind in (
        ("big", "integer", "1", "3", 5, 20),
        ("amount", "decimal", "1.5", "3.50", 4, 16),
        ("ratio", "decimal", "0.5", "1.0", 4, 9),
        ("code", "text", codes[3], codes[9], 3, 10),
        ("clock", "text", "00:00:03", "00:00:09", 3, 10),
        ("day", "timestamp", "2025-01-02", "2025-01-03", 6, 18),
        (["big", "code"], ["integer", "text"], ["1", codes[7]], ["3", codes[16]], 7, 17),
        (["day", "clock"], ["timestamp", "text"], ["2025-01-02", "00:00:08"], ["2025-01-03", "00:00:14"], 8, 15),
    ):
        stream = things(cursor=fields, cursor_type=types)
        assert shop.read(stream, size, since(stream, lower, upper, closed=True)) == codes[first:behind], fields
        assert shop.read(stream, size) == codes, fields


def test_slices_hold_every_record_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odata, "LEAST_RECORDS", 10)
    shop.put(*((n, second(n * 7 % 30)) for n in range(100)), *((n, second(31)) for n in range(100, 150)))
    stream = orders()
    window = fixed_window(stream, None, shop.connector.now(stream))
    slices = shop.connector.slices(stream, window, 4)
    assert len(slices) == 4
    assert [slice.number for slice in slices] == [0, 1, 2, 3]
    assert [slice.lower for slice in slices[1:]] == [slice.upper for slice in slices[:-1]]
    assert (slices[0].lower, slices[-1].upper) == (None, str(window.upper))
    found = [[id for page in shop.connector.read(stream, slice, 9) for id in page["id"].to_pylist()] for slice in slices]
    assert sorted(id for each in found for id in each) == list(range(150))
    assert all(found)
    assert len(shop.connector.slices(stream, since(stream, second(31)), 4)) == 1  # all of one tick
    monkeypatch.setattr(odata, "MOST_RECORDS", 20)
    assert len(shop.connector.slices(stream, window, 2)) > 4
    assert shop.connector.slices(stream, since(stream, second(5), second(4)), 2) == []
    assert shop.connector.slices(orders(cursor=None), Window(), 2) == [Slice(0)]


def test_all_keys_are_listed_with_no_other_field(shop: Shop) -> None:
    rows = ", ".join(f"('c{n % 3}', {n})" for n in range(25))
    shop.server.execute(f"INSERT INTO data_Things (code, part) VALUES {rows}")
    pages = list(shop.connector.keys(things(), 10))
    assert pages[0].schema.names == ["code", "part"]
    found = [tuple(row.values()) for page in pages for row in page.to_pylist()]
    assert found == sorted((f"c{n % 3}", n) for n in range(25))
    # A key of the manifest's own is listed, and paged by the entity's.
    codes = [code for page in shop.connector.keys(things(key=["code"]), 4) for code in page["code"].to_pylist()]
    assert codes == sorted(f"c{n % 3}" for n in range(25))


# --- refusals and faults -----------------------------------------------------------------------------------------------


def test_a_login_is_used_and_a_wrong_one_is_refused(shop: Shop) -> None:
    def connector(service: str, **credentials: str) -> ODataConnector:
        return ODataConnector({"url": f"{shop.server.url}/odata/v4/{service}/"}, credentials)

    shop.put((1, second(1)))
    server = shop.server
    (page,) = connector("closed", user=server.user, password=server.password).read(orders(), Slice(0), 10)
    assert page.num_rows == 1
    for refused in (
        connector("closed"),
        connector("closed", user=server.user, password="wrong-secret"),
        connector("forbidden", user=server.user, password=server.password),
    ):
        with pytest.raises(SourceRefused, match=r"shop\.orders \(entity set 'Orders'\).*Check `credentials`") as told:
            refused.count(orders(), Window())
        assert "secret" not in str(told.value)


def test_a_token_is_sent_as_bearer(shop: Shop) -> None:
    source = http.HttpSource(shop.proxy.url, {"token": "t0ken"}, lambda: None)
    assert source._client.headers["Authorization"] == "Bearer t0ken"
    source.close()


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        (Answered(400), SourceError, "does not understand the request \\(status 400\\)"),
        (Answered(404), SourceError, "entity set 'Orders'.*no such thing"),
        (Answered(500, b"secret"), SourceError, "failed \\(status 500\\)"),
        (Answered(502), SourceError, "failed \\(status 502\\)"),
        (Answered(503), SourceError, "too busy \\(status 503\\)"),
        (Answered(302, headers={"Location": "http://elsewhere.example/"}), SourceError, "leads elsewhere"),
        (Answered(204), SourceError, "status 204"),
        (WEB_PAGE, SourceError, "a web page instead of data"),
        (Answered(200, b"<html>secret</html>", {"Content-Type": "application/json"}), SourceError, "not JSON"),
        (Answered(200, b'{"value":[{"id":1'), SourceError, "not JSON, or broke off"),
        (Answered(200, b"", {"Content-Encoding": "br"}), SourceError, "packed in a way that was not requested"),
        (Answered(200, b"no gzip", {"Content-Encoding": "gzip"}), SourceError, "gzip is damaged"),
        (CutGzip(), SourceError, "gzip is damaged or broke off"),
        (CutBody(), SourceUnreachable, "broke off"),
        (Reset(), SourceUnreachable, "broke off"),
    ],
)
def test_faults_on_the_way_are_named_and_quote_nothing(shop: Shop, fault: Any, error: type[Exception], told: str) -> None:
    shop.put(*((n, second(n)) for n in range(20)))
    stream = orders()
    pages = shop.connector.read(stream, Slice(0, lower=second(0)), 10)
    next(pages)
    shop.proxy.plan(fault, on="/Orders?")
    with pytest.raises(error, match=told) as raised:
        list(pages)
    assert type(raised.value) is error
    assert "shop.orders" in str(raised.value)
    assert not any(word in str(raised.value) for word in ("secret", "2025", "$filter"))
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    assert shop.read(stream) == list(range(20))  # and the next attempt finds everything


def test_nothing_that_listens_and_nothing_that_answers_are_unreachable(shop: Shop) -> None:
    with FaultProxy(shop.server.url) as gone:
        pass
    with pytest.raises(SourceUnreachable, match="nothing answers at"):
        ODataConnector({"url": gone.url}, {}).streams()
    slow = ODataConnector({"url": f"{shop.proxy.url}/odata/v4/shop", "timeout": 0.05}, {})
    shop.proxy.plan(Late(300), on="$metadata")
    with pytest.raises(SourceUnreachable, match=r"no answer from .* within 0\.05 s\. Raise `timeout`"):
        slow.streams()


def test_a_source_that_asks_for_patience_gets_it(shop: Shop, waits: list[float]) -> None:
    shop.put((1, second(1)))
    shop.proxy.plan(
        Answered(429, headers={"Retry-After": "7"}),
        Answered(503, headers={"Retry-After": "86400"}),
        Answered(429),
        on="/Orders?",
    )
    assert shop.read(orders(null_cursor="exclude")) == [1]
    assert waits == [7.0, 60.0, 4.0]
    late = {"Retry-After": "Wed, 01 Jan 2025 00:00:09 GMT", "Date": "Wed, 01 Jan 2025 00:00:04 GMT"}
    shop.proxy.plan(*(Answered(429, headers=late),) * 4, on="/Orders?")
    with pytest.raises(SourceError, match=r"too busy \(status 429\)"):
        list(shop.connector.read(orders(), Slice(0), 10))
    assert waits[3:] == [5.0] * 3


def test_a_key_without_a_value_ends_the_paging_by_name(shop: Shop) -> None:
    shop.proxy.plan(Answered(200, b'{"value":[{"id":null}]}'), on="/Orders?")
    with pytest.raises(SourceError, match="a record lacks a part of its key"):
        list(shop.connector.read(orders(cursor=None), Slice(0), 1))


def test_no_log_has_a_value_of_state(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shop.put((1, second(1)))
    assert shop.read(orders(), window=since(orders(), second(0))) == [1]
    assert "2025-01-01" in shop.asked_for()[-1]
    assert "2025-01-01" not in caplog.text


def test_a_connector_that_was_used_works_elsewhere_with_the_fields_it_knows(shop: Shop) -> None:
    shop.put((1, second(1)))
    shop.connector.discover(orders())
    before = len(shop.proxy.seen)
    with pickle.loads(pickle.dumps(shop.connector)) as elsewhere:
        assert sum(page.num_rows for page in elsewhere.read(orders(), Slice(0), 10)) == 1
    assert len(shop.proxy.seen) == before + 1


def test_every_request_waits_for_its_turn_and_has_no_plus_for_a_space(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.put(*((n, second(n)) for n in range(30)))
    turns: list[int] = []
    monkeypatch.setattr(shop.connector, "pace", lambda: turns.append(1))
    shop.proxy.plan(Answered(429, headers={"Retry-After": "0"}), on="/Orders?")
    shop.read(orders(), 10)
    assert len(turns) == len(shop.proxy.seen) > 5
    assert not any("+" in path for path in shop.proxy.seen)
