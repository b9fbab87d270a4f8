"""Salesforce as a source: what it is asked, what it answers, and what it refuses. No Spark."""

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.services.salesforce_soql import Parser, SoqlRefused, StubField
from tests.services.salesforce_stub import Fault, SalesforceStub, record_id, salesforce_stub
from tidemark.connectors.contract import Slice, Window, fixed_window
from tidemark.connectors.kinds import _salesforce_api, _salesforce_soql
from tidemark.connectors.kinds import salesforce as kind
from tidemark.connectors.kinds.salesforce import SalesforceConnector
from tidemark.connectors.registry import connector_for
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import (
    ConfigError,
    CursorInvalid,
    QuotaSpent,
    SchemaRefused,
    SourceError,
    SourceRefused,
    SourceUnreachable,
)

NOW = datetime(2025, 10, 2, 12, 0, 0, tzinfo=UTC)
FIELDS = [
    StubField("Name", "string", False),
    StubField("Amount", "currency"),
    StubField("Employees", "int"),
    StubField("Active", "boolean", False),
    StubField("Founded", "date"),
    StubField("LastSeen", "datetime"),
    StubField("Notes", "textarea", filterable=False, sortable=False),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SalesforceStub]:
    with salesforce_stub(tmp_path_factory.mktemp("salesforce")) as stub:
        yield stub


@pytest.fixture
def stub(server: SalesforceStub, monkeypatch: pytest.MonkeyPatch) -> SalesforceStub:
    """As new, with accounts and none in it."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    fresh = SalesforceStub()
    for name in ("batch", "used", "limit", "session_id", "faults", "asked", "paths", "before_batch", "after_query"):
        setattr(server, name, getattr(fresh, name))
    server.logins, server.objects, server.traits = {}, {}, {}
    server.clock = lambda: NOW
    server.make("Account", FIELDS)
    return server


@pytest.fixture
def salesforce(stub: SalesforceStub) -> Iterator[SalesforceConnector]:
    with connector(stub) as made:
        assert isinstance(made, SalesforceConnector)
        yield made


def connector(stub: SalesforceStub, **settings: Any) -> SalesforceConnector:
    found = {"instance": stub.host, "ca_file": stub.ca_file, **settings}
    return SalesforceConnector(found, {"session_id": stub.session_id})


def stream(**given: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {"id": "sf.account", "source": "Account", "key": ["Id"], "cursor": "SystemModstamp", **given}
    )


def stamp(second: int) -> str:
    return f"2025-10-02T10:{second // 60:02}:{second % 60:02}.000Z"


def window(spec: StreamSpec, lower: Any = None, upper: Any = None, *, closed: bool = False) -> Window:
    bounds = [None if each is None else spec.parse_cursor(each) for each in (lower, upper)]
    return Window(*bounds, closed)


def read(salesforce: SalesforceConnector, spec: StreamSpec, part: Window, page: int = 100, parallel: int = 2) -> list[Any]:
    """Names of the records, in the order they come; every page as the contract has it."""
    schema = salesforce.discover(spec)
    found: list[Any] = []
    for slice in salesforce.slices(spec, part, parallel):
        for batch in salesforce.read(spec, Slice.from_json(slice.to_json()), page):
            assert 0 < batch.num_rows <= page
            assert batch.schema == schema
            found += batch["Name"].to_pylist()
    return found


def fill(stub: SalesforceStub, count: int, *, same_second: bool = False) -> list[str]:
    for number in range(count):
        stub.add("Account", number, stamp(0 if same_second else number), Name=f"n{number}", Active=True)
    return [f"n{number}" for number in range(count)]


# --- the four rules of the seed ----------------------------------------------------------------------------------------


@pytest.mark.service
def test_the_input_state_is_respected_and_nothing_older_is_read(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    names = fill(stub, 20)
    spec = stream()
    part = fixed_window(spec, spec.parse_cursor(stamp(7)), salesforce.now(spec))
    assert read(salesforce, spec, part, page=3) == names[7:]
    assert salesforce.count(spec, part) == 13


@pytest.mark.service
def test_the_records_carry_the_maximum_cursor_over_all_pages(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    fill(stub, 20)
    spec = stream()
    pages = list(salesforce.read(spec, Slice(0), 3))
    greatest = max(each for page in pages for each in page["SystemModstamp"].to_pylist())
    assert len(pages) == 7
    assert spec.parse_cursor(greatest) == spec.parse_cursor(stamp(19))


@pytest.mark.service
def test_reading_a_window_twice_gives_the_same_records(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    fill(stub, 20)
    stub.add("Account", 3, stamp(3), Name="x", Active=False, Amount=0.1, LastSeen=stamp(1), Founded="2020-02-29")
    first, second = (pa.Table.from_batches(salesforce.read(stream(), Slice(0), size)) for size in (3, 100))
    assert first.num_rows == 20
    assert first.combine_chunks() == second.combine_chunks()


@pytest.mark.service
def test_a_safety_window_reads_again_what_lies_in_it(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    names = fill(stub, 20)
    spec = stream(safety_window="PT5S")
    part = fixed_window(spec, spec.parse_cursor(stamp(15)), salesforce.now(spec))
    assert read(salesforce, spec, part) == names[10:]


# --- pages and windows -------------------------------------------------------------------------------------------------


@pytest.mark.service
@pytest.mark.parametrize("page", [1, 4, 10, 11])
def test_a_tie_larger_than_a_page_is_read_completely(
    stub: SalesforceStub, salesforce: SalesforceConnector, page: int
) -> None:
    names = fill(stub, 10, same_second=True)
    stub.add("Account", 50, stamp(1), Name="later", Active=True)
    assert read(salesforce, stream(), Window(), page) == [*names, "later"]
    assert not any("OFFSET" in soql for soql in stub.asked)


@pytest.mark.service
def test_batches_of_one_page_are_fetched_by_their_locator(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    names = fill(stub, 25)
    stub.batch = 4
    assert read(salesforce, stream(), Window(), page=10) == names
    pages = [soql for soql in stub.asked if "LIMIT 10" in soql]
    assert len(pages) == 3
    assert sum("/query/01g" in path for path in stub.paths) == 2 + 2 + 1


@pytest.mark.service
def test_records_deleted_between_two_batches_do_not_end_the_reading(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    names = fill(stub, 25)
    stub.batch = 5
    stub.before_batch = lambda: stub.drop("Account", 7)
    assert read(salesforce, stream(), Window(), page=10) == [name for name in names if name != "n7"]


@pytest.mark.service
def test_a_record_that_changes_meanwhile_shifts_no_other_out(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    names = fill(stub, 12)
    spec = stream()
    part = fixed_window(spec, None, salesforce.now(spec))
    pages = salesforce.read(spec, salesforce.slices(spec, part, 1)[0], 4)
    found = next(pages)["Name"].to_pylist()
    for number in (0, 1, 9):  # two that were read, and one that was not
        stub.add("Account", number, "2025-10-02T12:00:01.000Z", Name="changed", Active=True)
    found += [name for page in pages for name in page["Name"].to_pylist()]
    assert found == [name for name in names if name != "n9"]


@pytest.mark.service
def test_ids_are_ordered_by_code_point(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    for number in (61, 35, 36, 9, 10):  # z, Z, a, 9, A
        stub.add("Account", number, stamp(0), Name=record_id(number), Active=True)
    assert read(salesforce, stream(), Window(), page=1) == sorted(map(record_id, (61, 35, 36, 9, 10)))


@pytest.mark.service
def test_bounds_are_exact_to_the_millisecond(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    for millisecond in (0, 1, 2, 3):
        stub.add("Account", millisecond, f"2025-10-02T10:00:00.00{millisecond}Z", Name=str(millisecond), Active=True)
    spec = stream()
    at = "2025-10-02T10:00:00."
    assert read(salesforce, spec, window(spec, f"{at}001Z", f"{at}003Z")) == ["1", "2"]
    assert read(salesforce, spec, window(spec, f"{at}001Z", f"{at}003Z", closed=True)) == ["1", "2", "3"]
    assert read(salesforce, spec, window(spec, f"{at}0005Z", f"{at}0025Z")) == ["1", "2"]
    assert read(salesforce, spec, window(spec, f"{at}0005Z", f"{at}0025Z", closed=True)) == ["1", "2"]
    assert read(salesforce, spec, window(spec, "2025-10-02T12:00:00.001+02:00", f"{at}003Z")) == ["1", "2"]


@pytest.mark.service
def test_bounds_beyond_what_soql_can_say_are_cut(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    names = fill(stub, 3)
    spec = stream()
    assert read(salesforce, spec, window(spec, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z")) == names


@pytest.mark.service
def test_the_servers_clock_ends_a_window(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    spec = stream(hold_back="PT1M")
    assert salesforce.now(spec) == spec.parse_cursor("2025-10-02T12:00:00Z")
    for number, moment in enumerate(("11:58:59", "11:59:00", "12:00:00", "12:00:01")):
        stub.add("Account", number, f"2025-10-02T{moment}Z", Name=moment, Active=True)
    assert read(salesforce, spec, fixed_window(spec, None, salesforce.now(spec))) == ["11:58:59"]
    assert read(salesforce, stream(), fixed_window(stream(), None, salesforce.now(stream()))) == ["11:58:59", "11:59:00"]


@pytest.mark.service
def test_slices_hold_every_record_once_and_meet_at_their_bounds(
    stub: SalesforceStub, salesforce: SalesforceConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "LEAST_RECORDS", 10)
    names = fill(stub, 100)
    for number in range(100, 150):  # a load of many within one second
        stub.add("Account", number, stamp(40), Name=f"n{number}", Active=True)
    spec = stream()
    part = window(spec, stamp(5), stamp(95))
    slices = salesforce.slices(spec, part, 4)
    assert len(slices) >= 3
    assert [slice.number for slice in slices] == list(range(len(slices)))
    assert (slices[0].lower, slices[-1].upper) == (str(part.lower), str(part.upper))
    assert all(one.upper == other.lower for one, other in pairwise(slices))
    assert all(salesforce.count(spec, slice.window(spec)) for slice in slices)
    found = read(salesforce, spec, part, page=7, parallel=4)
    assert sorted(found) == sorted([*names[5:95], *(f"n{number}" for number in range(100, 150))])
    assert salesforce.slices(spec, window(spec, stamp(9), stamp(9)), 4) == []


@pytest.mark.service
def test_a_window_is_cut_where_its_records_are_and_not_without_end(
    stub: SalesforceStub, salesforce: SalesforceConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "LEAST_RECORDS", 10)
    stub.add("Account", 900, "2005-01-01T00:00:00Z", Name="old", Active=True)
    names = fill(stub, 60)
    spec = stream()
    slices = salesforce.slices(spec, Window(), 4)
    # Twenty years halved twelve times leave two days: all but the oldest are in one of them.
    assert len(slices) == 2
    assert all(salesforce.count(spec, slice.window(spec)) for slice in slices)
    assert sum("COUNT()" in soql for soql in stub.asked) <= 1 + kind.HALVINGS + len(slices)
    assert read(salesforce, spec, Window(), parallel=4) == ["old", *names]


@pytest.mark.service
def test_the_id_can_be_the_cursor(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    names = fill(stub, 9)
    spec = stream(cursor="Id", cursor_type="text")
    part = fixed_window(spec, spec.parse_cursor(record_id(4)), salesforce.now(spec))
    assert read(salesforce, spec, part, page=2) == names[4:]


@pytest.mark.service
def test_a_small_window_is_one_slice_and_costs_few_requests(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    fill(stub, 30)
    spec = stream()
    part = fixed_window(spec, None, salesforce.now(spec))
    (slice,) = salesforce.slices(spec, part, 8)
    list(salesforce.read(spec, slice, 100))
    # A describe and a question each: now, slices, read.
    assert stub.used == 6


@pytest.mark.service
def test_a_stream_without_cursor_is_read_by_id(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    names = fill(stub, 7)
    spec = stream(cursor=None)
    assert salesforce.now(spec) is None
    assert salesforce.count(spec, Window()) == 7
    assert read(salesforce, spec, Window(), page=2) == names


@pytest.mark.service
def test_records_without_a_cursor_come_in_a_slice_of_their_own(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    for number, seen in enumerate((stamp(1), None, stamp(0), None, None)):
        stub.add("Account", number, stamp(9), Name=f"n{number}", Active=True, LastSeen=seen)
    spec = stream(cursor="LastSeen", null_cursor="include")
    slices = salesforce.slices(spec, Window(), 2)
    assert [slice.nulls for slice in slices] == [False, True]
    assert read(salesforce, spec, Window(), page=2) == ["n2", "n0", "n1", "n3", "n4"]
    assert salesforce.count(spec, Window()) == 2
    assert [slice.nulls for slice in salesforce.slices(stream(cursor="LastSeen", null_cursor="exclude"), Window(), 2)] == [
        False
    ]
    assert read(salesforce, stream(cursor="LastSeen", null_cursor="exclude"), Window()) == ["n2", "n0"]


@pytest.mark.service
@pytest.mark.parametrize("cursor_type", ["integer", "decimal"])
def test_a_number_can_be_the_cursor(stub: SalesforceStub, salesforce: SalesforceConnector, cursor_type: str) -> None:
    name = "Employees" if cursor_type == "integer" else "Amount"
    spec = stream(cursor=name, cursor_type=cursor_type, null_cursor="exclude")
    assert salesforce.now(spec) is None
    for number in (0, 9, 10, 100, 2_000_000):
        stub.add("Account", number, stamp(0), Name=str(number), Active=True, **{name: number})
    stub.add("Account", 7, stamp(0), Name="none", Active=True)
    part = fixed_window(spec, spec.parse_cursor(9), salesforce.now(spec))
    assert read(salesforce, spec, part, page=1) == ["9", "10", "100", "2000000"]


@pytest.mark.service
def test_a_date_can_be_the_cursor(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    for number in (1, 2, 3, 4):
        stub.add("Account", number, stamp(0), Name=str(number), Active=True, Founded=f"2025-10-0{number}")
    spec = stream(cursor="Founded", null_cursor="exclude")
    assert salesforce.now(spec) == spec.parse_cursor("2025-10-02")
    assert read(salesforce, spec, window(spec, "2025-10-02", "2025-10-04"), page=1) == ["2", "3"]
    assert read(salesforce, spec, window(spec, "2025-10-01T00:00:01Z", "2025-10-03T00:00:01Z"), page=1) == ["2", "3"]
    zoned = stream(cursor="Founded", null_cursor="exclude", cursor_zone="America/New_York")
    stub.clock = lambda: datetime(2025, 10, 2, 1, tzinfo=UTC)
    assert str(salesforce.now(zoned)) == "2025-10-01"
    assert read(salesforce, zoned, window(zoned, "2025-10-02", "2025-10-04")) == ["2", "3"]


@pytest.mark.service
def test_a_composite_cursor_is_compared_part_by_part(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    for number in range(9):
        stub.add("Account", number, stamp(number // 3), Name=f"n{number}", Active=True, Employees=number % 3)
    spec = stream(cursor=["SystemModstamp", "Employees"], cursor_type=["timestamp", "integer"])
    part = window(spec, [stamp(0), "2"], [stamp(2), "1"], closed=True)
    assert read(salesforce, spec, part, page=2) == ["n2", "n3", "n4", "n5", "n6", "n7"]
    now = salesforce.now(spec)
    assert read(salesforce, spec, fixed_window(spec, spec.parse_cursor([stamp(2), "0"]), now)) == ["n6", "n7", "n8"]


@pytest.mark.service
def test_a_cursor_that_is_not_compared_as_it_is_shown_is_named(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    fill(stub, 10, same_second=True)
    first = stub.query("SELECT Id, Name FROM Account ORDER BY Id LIMIT 2", deleted=False)
    page = {**first, "records": [{**dict.fromkeys(stub.objects["Account"]), **each} for each in first["records"]]}
    for record in page["records"]:
        record |= {"SystemModstamp": "2025-10-02T10:00:00.000+0000", "IsDeleted": False, "Active": True}
    stub.faults.append(Fault("/query/", body=page, times=50))
    with pytest.raises(SourceError, match="the same records again and again"):
        list(salesforce.read(stream(), Slice(0), 2))


# --- deletions ---------------------------------------------------------------------------------------------------------


@pytest.mark.service
def test_deleted_records_are_asked_for_where_their_flag_tells_deletions(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    fill(stub, 3)
    stub.add("Account", 1, stamp(30), Name="gone", Active=True, IsDeleted=True)
    assert read(salesforce, stream(), Window()) == ["n0", "n2"]
    assert salesforce.count(stream(), Window()) == 2
    flagged = stream(deletes="flag", delete_flag="IsDeleted")
    assert read(salesforce, flagged, Window()) == ["n0", "n2", "gone"]
    assert salesforce.count(flagged, Window()) == 3
    assert read(salesforce, stream(deletes="flag", delete_flag="Active"), Window()) == ["n0", "n2"]
    (last,) = salesforce.read(flagged, Slice(0, stamp(30)), 10)
    assert last["IsDeleted"].to_pylist() == [True]
    with pytest.raises(ConfigError, match="'Account' has no field 'Gone', which `delete_flag` names"):
        salesforce.discover(stream(deletes="flag", delete_flag="Gone"))


@pytest.mark.service
def test_a_complete_listing_of_keys_is_paged_by_id(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    fill(stub, 11)
    stub.add("Account", 4, stamp(0), Name="gone", Active=True, IsDeleted=True)
    stub.batch = 2
    flagged = stream(deletes="flag", delete_flag="IsDeleted")
    for page in (3, 5, 10, 100):
        batches = list(salesforce.keys(flagged, page))
        assert all(batch.schema == pa.schema([("Id", pa.string())]) and batch.num_rows <= page for batch in batches)
        found = [key for batch in batches for key in batch["Id"].to_pylist()]
        assert found == [record_id(number) for number in range(11) if number != 4]
    with pytest.raises(SchemaRefused, match="'Account' has no field Number, which `key` names"):
        list(salesforce.keys(stream(key=["Id", "Number"]), 3))
    named = [name for batch in salesforce.keys(stream(key=["Name"]), 3) for name in batch["Name"].to_pylist()]
    assert named == [f"n{number}" for number in range(11) if number != 4]


@pytest.mark.service
def test_a_listing_that_is_not_complete_is_no_listing(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    fill(stub, 9)
    stub.faults.append(Fault("/query", body={"totalSize": 3, "done": True, "records": []}, times=10_000))
    with pytest.raises(SourceError, match="found records and gave none"):
        list(salesforce.keys(stream(), 3))


@pytest.mark.service
def test_keys_of_records_that_change_meanwhile_are_listed_once(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    fill(stub, 9)
    stub.after_query = lambda: stub.add("Account", 8, stamp(59), Name="changed", Active=True)
    found = [key for batch in salesforce.keys(stream(), 3) for key in batch["Id"].to_pylist()]
    assert found == [record_id(number) for number in range(9)]


# --- fields ------------------------------------------------------------------------------------------------------------


@pytest.mark.service
def test_every_type_of_field_becomes_its_type_of_arrow(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    text = ("reference", "picklist", "multipicklist", "textarea", "email", "phone", "url", "combobox", "encryptedstring")
    typed: dict[str, tuple[str, Any, pa.DataType, Any]] = {
        "Flag": ("boolean", True, pa.bool_(), True),
        "Whole": ("int", -5, pa.int32(), -5),
        "Long": ("long", 2**40, pa.int64(), 2**40),
        "Number": ("double", 1.5, pa.float64(), 1.5),
        # Three digits where two are declared: Salesforce keeps what programs write.
        "Money": ("currency", 1.239, pa.float64(), 1.239),
        "Large": ("currency", 1.39e8, pa.float64(), 1.39e8),
        "Share": ("percent", 12, pa.float64(), 12.0),
        "Day": ("date", "2024-02-29", pa.date32(), date(2024, 2, 29)),
        "Moment": ("datetime", "2025-10-02T10:00:00.123Z", pa.timestamp("us", tz="UTC"), "2025-10-02T10:00:00.123"),
        "Hour": ("time", "12:30:00.000Z", pa.string(), "12:30:00.000Z"),
        "Old": ("anyType", 7.5, pa.string(), "7.5"),
        "Older": ("anyType", "seven", pa.string(), "seven"),
        **{f"T{name}": (name, f"ä '{name}' \\ \n", pa.string(), f"ä '{name}' \\ \n") for name in text},
    }
    scale = {"precision": 18, "scale": 2}
    left_out = [StubField("Body", "base64"), StubField("Place", "location"), StubField("Home", "address")]
    stub.make("Thing", [*(StubField(name, each[0], more=scale) for name, each in typed.items()), *left_out])
    stub.add("Thing", 1, stamp(0), **{name: each[1] for name, each in typed.items()}, Body="x", Place={"latitude": 1})
    stub.add("Thing", 2, stamp(1))
    spec = stream(source="Thing")
    schema = salesforce.discover(spec)
    own = [("Id", pa.string()), ("IsDeleted", pa.bool_()), ("SystemModstamp", pa.timestamp("us", tz="UTC"))]
    assert schema == pa.schema([*own, *((name, each[2]) for name, each in typed.items())])
    (batch,) = salesforce.read(spec, Slice(0), 10)
    assert batch.schema == schema
    full, empty = batch.to_pylist()
    full["Moment"] = full["Moment"].isoformat(timespec="milliseconds").removesuffix("+00:00")
    assert {name: full[name] for name in typed} == {name: each[3] for name, each in typed.items()}
    assert {empty[name] for name in typed} == {None}


@pytest.mark.service
def test_a_field_that_came_is_discovered_and_read(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    fill(stub, 2)
    assert "Fresh__c" not in salesforce.discover(stream()).names
    stub.gain("Account", StubField("Fresh__c", "double"))
    stub.add("Account", 1, stamp(5), Name="new", Active=True, Fresh__c=2.5)
    assert "Fresh__c" in salesforce.discover(stream()).names
    assert [batch["Fresh__c"].to_pylist() for batch in salesforce.read(stream(), Slice(0), 10)] == [[None, 2.5]]


@pytest.mark.service
@pytest.mark.parametrize(
    ("declared", "value"),
    [("date", "secret"), ("datetime", "secret"), ("int", "secret"), ("int", 2**40), ("boolean", "secret"), ("double", True)],
)
def test_a_value_that_is_not_of_its_type_is_told_by_field_not_by_value(
    stub: SalesforceStub, salesforce: SalesforceConnector, declared: str, value: Any
) -> None:
    stub.make("Odd", [StubField("Weird", declared)])
    record = {"Id": "1", "IsDeleted": False, "SystemModstamp": stamp(0), "Weird": value}
    stub.faults.append(Fault("/query/", body={"totalSize": 1, "done": True, "records": [record]}))
    with pytest.raises(SourceError, match=f"'Weird', or its value is no {declared}") as told:
        list(salesforce.read(stream(source="Odd"), Slice(0), 10))
    assert "secret" not in str(told.value)


WIDE = [StubField(f"A_field_with_a_name_of_some_length_{number:04}__c", "double") for number in range(600)]


@pytest.mark.service
def test_an_object_with_more_fields_than_a_request_can_name_is_read_in_parts(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    stub.make("Wide", [StubField("Name"), *WIDE])
    for number in range(10):
        stub.add("Wide", number, stamp(number // 4), Name=f"n{number}", **{WIDE[599].name: number, WIDE[0].name: -number})
    stub.batch = 2
    spec = stream(source="Wide")
    records = pa.Table.from_batches(salesforce.read(spec, Slice(0), 3))
    assert records.schema == salesforce.discover(spec)
    assert records["Name"].to_pylist() == [f"n{number}" for number in range(10)]
    assert records[WIDE[599].name].to_pylist() == list(range(10))
    assert records[WIDE[0].name].to_pylist() == [-number for number in range(10)]
    assert max(map(len, stub.paths)) < 16_000


@pytest.mark.service
def test_a_record_that_changes_between_its_parts_is_not_put_together_from_two_versions(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    stub.make("Wide", [StubField("Name"), *WIDE])
    values = {WIDE[599].name: 0, WIDE[0].name: 0}
    for number in range(4):
        stub.add("Wide", number, stamp(number), Name=f"n{number}", **values)
    once = [True]

    def change() -> None:
        if once and once.pop():
            stub.add("Wide", 2, stamp(40), Name="n2", **dict.fromkeys(values, 1))

    stub.after_query = change
    spec = stream(source="Wide")
    found = pa.Table.from_batches(salesforce.read(spec, Slice(0), 10)).to_pylist()
    assert [each["Name"] for each in found] == ["n0", "n1", "n3", "n2"]
    assert found[-1][WIDE[0].name] == found[-1][WIDE[599].name] == 1
    counter = iter(range(100))
    stub.after_query = lambda: stub.add("Wide", 2, stamp(50 + next(counter)), Name="n2", **values)
    with pytest.raises(SourceError, match="change while they are read in parts"):
        list(salesforce.read(spec, Slice(0), 10))


# --- what can be a stream ----------------------------------------------------------------------------------------------


@pytest.mark.service
def test_the_objects_that_can_be_queried_are_offered(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    stub.make("Contact", [], label="Contact")
    stub.make("AccountHistory", [], replicateable=False)
    stub.make("Hidden", [], queryable=False)
    offered = salesforce.streams()
    assert [each.source for each in offered] == ["Account", "AccountHistory", "Contact"]
    assert [each.cursors for each in offered] == [("SystemModstamp",), (), ("SystemModstamp",)]
    assert {each.key for each in offered} == {("Id",)}
    assert offered[2].comment == "Contact"


@pytest.mark.service
@pytest.mark.parametrize("body", [{}, {"sobjects": [{}], "fields": [{}], "queryable": True}, "null", "<html>", ["secret"]])
def test_a_description_that_is_none_is_named(stub: SalesforceStub, salesforce: SalesforceConnector, body: Any) -> None:
    stub.faults.append(Fault("/sobjects", body=body, times=2))
    for ask in (salesforce.streams, lambda: salesforce.discover(stream())):
        with pytest.raises(SourceError, match="no answer of Salesforce's API"):
            ask()


@pytest.mark.service
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cursor": "Nothing"}, "the field 'Nothing' of Account is not there, or the user may not see it"),
        ({"cursor": "Name", "cursor_type": "text"}, "of the type string: .* choose a date, a number or the Id"),
        ({"cursor": "Amount"}, "cannot be a cursor of type timestamp, only as `cursor_type` decimal"),
        ({"cursor": "SystemModstamp", "cursor_type": "integer"}, "only as `cursor_type` timestamp"),
        ({"cursor": "Unsorted"}, "'Unsorted' of Account cannot be sorted or compared"),
    ],
)
def test_a_cursor_that_salesforce_cannot_order_by_is_refused(
    stub: SalesforceStub, salesforce: SalesforceConnector, given: dict[str, Any], words: str
) -> None:
    stub.gain("Account", StubField("Unsorted", "datetime", sortable=False))
    for ask in (salesforce.now, lambda spec: salesforce.slices(spec, Window(), 2)):
        with pytest.raises(ConfigError, match=words):
            ask(stream(**given))


@pytest.mark.service
def test_an_object_that_is_not_there_or_cannot_be_queried_is_named(
    stub: SalesforceStub, salesforce: SalesforceConnector
) -> None:
    stub.make("Hidden", [], queryable=False)
    with pytest.raises(
        SourceError, match=r"sf\.account: .* has no such object, or the user may not see it \(404 NOT_FOUND\)"
    ):
        salesforce.discover(stream(source="Nobody"))
    with pytest.raises(ConfigError, match="does not let 'Hidden' be queried"):
        salesforce.discover(stream(source="Hidden"))
    with pytest.raises(ConfigError, match="cannot be the name of an object"):
        salesforce.discover(stream(source="Account WHERE true"))
    assert all("WHERE true" not in path for path in stub.paths)


# --- limits and errors -------------------------------------------------------------------------------------------------


@pytest.mark.service
def test_reading_stops_when_its_share_of_the_api_limit_is_used(stub: SalesforceStub) -> None:
    fill(stub, 30)
    stub.used, stub.limit = 40, 100
    with connector(stub, api_limit_share=0.5) as salesforce:
        pages = salesforce.read(stream(), Slice(0), 1)
        assert sum(1 for _ in zip(range(9), pages, strict=False)) == 9  # and a describe: 50 of 100
        with pytest.raises(QuotaSpent, match=r"sf\.account: 51 of 100 API calls .* the share of 0\.5 in `api_limit_share`"):
            next(pages)
    assert stub.used == 51


@pytest.mark.service
def test_the_limit_of_one_app_counts_too(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    told = {"Sforce-Limit-Info": "api-usage=1/5000; per-app-api-usage=241/250(appName=tidemark)"}
    stub.faults.append(Fault("/sobjects", body={"sobjects": []}, headers=told))
    with pytest.raises(QuotaSpent, match="241 of 250"):
        salesforce.streams()


def refusal(status: int, code: str, words: str = "") -> Fault:
    return Fault("/query", status, [{"errorCode": code, "message": f"{words} SystemModstamp >= 2025 secret"}])


@pytest.mark.service
@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (refusal(401, "INVALID_SESSION_ID"), SourceRefused, r"refused the session .*\(401 INVALID_SESSION_ID\)"),
        (refusal(403, "INSUFFICIENT_ACCESS"), SourceRefused, r"\(403 INSUFFICIENT_ACCESS\)"),
        (refusal(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded."), QuotaSpent, "the limit .* is reached"),
        (refusal(403, "REQUEST_LIMIT_EXCEEDED", "ConcurrentPerOrgLongTxn Limit"), SourceError, "too many long requests"),
        (refusal(400, "MALFORMED_QUERY"), SourceError, r"refused the query \(400 MALFORMED_QUERY\)"),
        (refusal(400, "it says secret"), SourceError, r"refused the query \(400\)"),
        (refusal(404, "NOT_FOUND"), SourceError, "no such object"),
        (refusal(500, "UNKNOWN_EXCEPTION"), SourceError, r"failed \(500 UNKNOWN_EXCEPTION\)"),
        (Fault("/query", 503, "<html>secret</html>"), SourceError, r"failed \(503\)"),
        (Fault("/query", 401, "<html>secret</html>"), SourceRefused, r"\(401\)"),
        (Fault("/query", 400, ["secret"]), SourceError, r"\(400\)"),
        (Fault("/query", 200, "<html>secret</html>"), SourceError, "no answer of Salesforce's API"),
        (Fault("/query", 200, "[1, 2]"), SourceError, "no answer of Salesforce's API"),
        (Fault("/query", 200, "{}"), SourceError, "no answer of Salesforce's API"),
        (Fault("/query", 200, {"totalSize": "x", "done": True, "records": []}), SourceError, "no answer"),
        (Fault("/query", 200, {"totalSize": 9, "done": False, "records": [{}]}), SourceError, "no answer"),
        (
            Fault("/query", 200, {"totalSize": 9, "done": False, "records": [], "nextRecordsUrl": "/services/data/query/1"}),
            SourceError,
            "no answer of Salesforce's API",
        ),
        (
            Fault("/query", 200, {"totalSize": 9, "done": False, "records": [{}], "nextRecordsUrl": "@secret/"}),
            SourceError,
            "no answer of Salesforce's API",
        ),
        (Fault("/query", 200, {"totalSize": 90, "done": True, "records": []}), SourceError, "found records and gave none"),
        (Fault("/query", 200, {"totalSize": 1, "done": True, "records": [{}]}), SourceError, "lacks the field"),
        (Fault("/query", instead="drop"), SourceUnreachable, "broke off or does not answer"),
        (Fault("/query", instead="hang"), SourceUnreachable, r"does not answer \(ReadTimeout\)"),
    ],
)
def test_what_goes_wrong_is_named_without_a_value(
    stub: SalesforceStub, monkeypatch: pytest.MonkeyPatch, fault: Fault, error: type[Exception], words: str
) -> None:
    monkeypatch.setattr(_salesforce_api, "ANSWER_SECONDS", 0.3)
    fill(stub, 3)
    fault.times = 10_000
    stub.faults.append(fault)
    with connector(stub) as salesforce, pytest.raises(error, match=words) as told:
        list(salesforce.read(stream(), Slice(0, stamp(0), stamp(50)), 10))
    assert type(told.value) is error
    assert str(told.value).startswith("sf.account: ")
    assert told.value.__suppress_context__ or told.value.__context__ is None
    for value in ("secret", "2025", "SELECT", "query?", stub.session_id):
        assert value not in str(told.value)


@pytest.mark.service
def test_a_fault_in_a_later_batch_is_named_too(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    fill(stub, 9)
    stub.batch = 2
    stub.faults.append(Fault("/query/01g", 400, [{"errorCode": "INVALID_QUERY_LOCATOR", "message": "secret"}]))
    with pytest.raises(SourceError, match=r"\(400 INVALID_QUERY_LOCATOR\)"):
        read(salesforce, stream(), Window())
    assert len(read(salesforce, stream(), Window())) == 9


@pytest.mark.service
@pytest.mark.parametrize(("body", "head"), [({"query": ""}, ""), ({"query": ""}, "yesterday"), (["x"], None), ("5", None)])
def test_a_clock_that_is_not_the_servers_is_named(
    stub: SalesforceStub, salesforce: SalesforceConnector, body: Any, head: str | None
) -> None:
    stub.faults.append(Fault(r"/v62\.0/$", body=body, headers={} if head is None else {"Date": head}))
    with pytest.raises(SourceError, match="no answer of Salesforce's API"):
        salesforce.now(stream())


@pytest.mark.service
def test_nobody_there_and_an_unknown_certificate_are_told_apart(stub: SalesforceStub, tmp_path: Path) -> None:
    stranger = SalesforceConnector({"instance": stub.host}, {"session_id": "x"})
    with pytest.raises(SourceUnreachable, match=r"certificate of 127\.0\.0\.1:\d+ is not trusted.*`ca_file`"):
        stranger.discover(stream())
    nobody = SalesforceConnector({"instance": "127.0.0.1:1", "ca_file": stub.ca_file}, {"session_id": "x"})
    with pytest.raises(SourceUnreachable, match="does not answer"):
        nobody.discover(stream())


# --- logins ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def behind_a_proxy(stub: SalesforceStub, monkeypatch: pytest.MonkeyPatch) -> SalesforceStub:
    """Hosts of Salesforce are reached through a proxy, which leads to the stub."""
    monkeypatch.setenv("HTTPS_PROXY", stub.proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")
    fill(stub, 3)
    return stub


def private_key() -> tuple[str, str]:
    key = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


PRIVATE, PUBLIC = private_key()
SECRETS = {"password": "pass&<word>", "security_token": "tok", "consumer_secret": "hush", "private_key": PRIVATE}
WAYS = {
    "token": (("user", "password", "security_token"), "ann@acme", "pass&<word>tok"),
    "password": (("user", "password", "consumer_key", "consumer_secret"), "ann@acme", ("pass&<word>", "consumer", "hush")),
    "signature": (("user", "consumer_key", "private_key"), "ann@acme", PUBLIC),
    "consumer": (("consumer_key", "consumer_secret"), "consumer", "hush"),
}


def login(way: str, stub: SalesforceStub) -> SalesforceConnector:
    everything = {"user": "ann@acme", "consumer_key": "consumer", **SECRETS}
    credentials = {name: everything[name] for name in WAYS[way][0]}
    return SalesforceConnector({"domain": "acme.my", "ca_file": stub.ca_file}, credentials)


@pytest.mark.service
@pytest.mark.parametrize("way", WAYS)
def test_every_login_opens_a_session(behind_a_proxy: SalesforceStub, way: str) -> None:
    stub = behind_a_proxy
    stub.logins[WAYS[way][1]] = WAYS[way][2]
    with login(way, stub) as salesforce:
        assert len(stub.paths) == 0
        assert read(salesforce, stream(), Window()) == ["n0", "n1", "n2"]
        # Expired meanwhile: it logs in again by itself.
        stub.session_id = "another"
        assert read(salesforce, stream(), Window()) == ["n0", "n1", "n2"]


@pytest.mark.service
@pytest.mark.parametrize("way", WAYS)
def test_a_refused_login_is_told_without_what_it_was_tried_with(behind_a_proxy: SalesforceStub, way: str) -> None:
    stub = behind_a_proxy
    stub.logins[WAYS[way][1]] = PUBLIC if way != "signature" else private_key()[1]
    with (
        login(way, stub) as salesforce,
        pytest.raises(SourceRefused, match=r"acme\.my\.salesforce\.com refused the") as told,
    ):
        salesforce.discover(stream())
    for secret in (*SECRETS.values(), "ann@acme", "pass&amp;"):
        assert secret not in str(told.value)


@pytest.mark.service
@pytest.mark.parametrize("way", ["token", "consumer"])
@pytest.mark.parametrize("status", [200, 503])
def test_a_login_that_cannot_be_taken_now_is_no_refusal(behind_a_proxy: SalesforceStub, way: str, status: int) -> None:
    stub = behind_a_proxy
    stub.faults.append(Fault("/services/", status, "<html><p>secret</html>"))
    with login(way, stub) as salesforce, pytest.raises(SourceError) as told:
        salesforce.discover(stream())
    assert "secret" not in str(told.value)
    if (way, status) != ("consumer", 200):
        assert type(told.value) is SourceError


@pytest.mark.service
def test_a_warning_of_the_library_does_not_give_the_consumer_key_away(
    behind_a_proxy: SalesforceStub, recwarn: pytest.WarningsRecorder
) -> None:
    stub = behind_a_proxy
    refused = {"error": "invalid_grant", "error_description": "user hasn't approved this consumer"}
    stub.faults.append(Fault("/oauth2/token", 400, refused))
    with login("consumer", stub) as salesforce, pytest.raises(SourceRefused, match=r"\(invalid_grant\)"):
        salesforce.discover(stream())
    assert not [each for each in recwarn if "consumer" in str(each.message)]


@pytest.mark.service
def test_an_expired_session_is_told(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    salesforce.discover(stream())
    stub.session_id = "another"
    with pytest.raises(SourceRefused, match=r"401 INVALID_SESSION_ID.*Is the session expired"):
        salesforce.discover(stream())


@pytest.mark.service
def test_a_login_in_netrc_does_not_take_the_place_of_the_session(
    stub: SalesforceStub, salesforce: SalesforceConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert "Name" in salesforce.discover(stream()).names


# --- the connector -----------------------------------------------------------------------------------------------------


@pytest.mark.service
def test_a_connector_that_was_used_travels_as_a_pickle(stub: SalesforceStub, salesforce: SalesforceConnector) -> None:
    names = fill(stub, 3)
    salesforce.limit(1000)
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(salesforce))
        assert read(copy, stream(), Window()) == names
        copy.close()
        copy.close()
        assert read(salesforce, stream(), Window()) == names


@pytest.mark.service
def test_every_request_waits_its_turn(
    stub: SalesforceStub, salesforce: SalesforceConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(stub, 25)
    stub.batch = 3
    turns: list[int] = []
    monkeypatch.setattr(salesforce._pace, "wait", lambda: turns.append(1))
    read(salesforce, stream(), Window(), page=10)
    assert len(turns) == len(stub.paths) > 10


SESSION = {"session_id": "s3cret"}
TOKEN = {"user": "ann", "password": "s3cret", "security_token": "s3cret"}
CONSUMER = {"consumer_key": "s3cret", "consumer_secret": "s3cret"}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "credentials", "words"),
    [
        ({"url": "x"}, SESSION, "unknown: url. It has: api_limit_share, ca_file, domain, instance, version"),
        ({}, SESSION, "`instance` is missing"),
        ({"instance": "http://acme"}, SESSION, "`instance` is missing or no name of a host"),
        ({"instance": "acme/path"}, SESSION, "`instance` is missing or no name of a host"),
        ({"instance": 5}, SESSION, "`instance` is missing or no name of a host"),
        ({"domain": "acme.my"}, SESSION, "`domain` does not go with these credentials"),
        ({"instance": "a.b"}, TOKEN, "`instance` does not go with these credentials"),
        ({}, CONSUMER, "`domain` is missing"),
        ({"domain": "login"}, CONSUMER, "`domain` must be your own"),
        ({"domain": "a b"}, TOKEN, "`domain` is missing or no name of a host"),
        ({"instance": "a.b", "version": "v62.0"}, SESSION, "version must be one of the API's"),
        ({"instance": "a.b", "api_limit_share": 1.5}, SESSION, "api_limit_share must be a number above 0"),
        ({"instance": "a.b", "api_limit_share": 0}, SESSION, "api_limit_share must be a number above 0"),
        ({"instance": "a.b", "api_limit_share": True}, SESSION, "api_limit_share must be a number above 0"),
        ({"instance": "a.b", "api_limit_share": "half"}, SESSION, "api_limit_share must be a number above 0"),
        ({"instance": "a.b", "ca_file": "/no/such"}, SESSION, "ca_file must be the path of a file"),
        ({"instance": "a.b"}, {}, "these do not make a login. It takes session_id; or user, password, security_token; or"),
        ({}, {"user": "ann", "password": "s3cret"}, "these do not make a login"),
        ({"instance": "a.b"}, {**SESSION, "token": "s3cret"}, "these do not make a login"),
        ({}, {"user": "a", "consumer_key": "k", "private_key": "s3cret"}, "private_key is no private key in PEM"),
    ],
)
def test_wrong_settings_and_credentials_are_told(settings: dict[str, Any], credentials: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as told:
        SalesforceConnector(settings, credentials)
    assert "s3cret" not in str(told.value)


@pytest.mark.fast
def test_addresses_may_be_written_as_they_are_copied() -> None:
    given = {"instance": "https://acme.my.salesforce.com/", "version": 61.0, "api_limit_share": "0.5"}
    made = connector_for("salesforce", given, SESSION)
    assert isinstance(made, SalesforceConnector)
    assert made._api.target == "acme.my.salesforce.com"
    login = SalesforceConnector({"domain": "acme.my.salesforce.com"}, TOKEN)
    assert login._api.target == "acme.my.salesforce.com"
    assert SalesforceConnector({}, TOKEN)._api.target == "login.salesforce.com"
    assert "s3cret" not in f"{made!r} {vars(login._api)!r}"


@pytest.mark.fast
def test_a_connector_that_was_not_used_travels_as_a_pickle_and_closes() -> None:
    made = pickle.loads(pickle.dumps(SalesforceConnector({"instance": "a.b"}, SESSION)))
    made.limit(5)
    made.close()


@pytest.mark.fast
def test_text_is_quoted_and_moments_are_not() -> None:
    of = {name: _salesforce_soql.Field(name, name, False, True) for name in ("id", "datetime", "double", "int")}
    assert _salesforce_soql.literal(of["id"], "a'b\\") == r"'a\'b\\'"
    assert _salesforce_soql.literal(of["datetime"], "2025-10-02T12:00:00.5+02:00") == "2025-10-02T10:00:00.500Z"
    assert _salesforce_soql.literal(of["double"], 1.39e20) == "139000000000000000000"
    assert _salesforce_soql.literal(of["int"], -7) == "-7"


@pytest.mark.fast
def test_a_state_that_is_no_cursor_is_refused() -> None:
    with pytest.raises(CursorInvalid):
        Slice(0, "x' OR Id != '").window(stream())


@pytest.mark.fast
@pytest.mark.parametrize(
    ("soql", "code"),
    [
        ("SELECT Id FROM Account WHERE SystemModstamp > '2025-10-02T10:00:00Z'", "INVALID_FIELD"),
        ("SELECT Id FROM Account WHERE SystemModstamp > 2025-10-02", "INVALID_FIELD"),
        ("SELECT Id FROM Account WHERE SystemModstamp > 0001-10-02T10:00:00Z", "INVALID_FIELD"),
        ("SELECT Id FROM Account WHERE Founded > 2025-10-02T10:00:00Z", "INVALID_FIELD"),
        ("SELECT Nothing FROM Account", "INVALID_FIELD"),
        ("SELECT Id, Id FROM Account", "INVALID_FIELD"),
        ("SELECT Id FROM Account WHERE Notes = 'x'", "INVALID_FIELD"),
        ("SELECT Id FROM Account ORDER BY Notes", "MALFORMED_QUERY"),
        ("SELECT Id FROM Nobody", "INVALID_TYPE"),
        ("SELECT Id FROM Account WHERE Id = 'a' AND Id = 'b' OR Id = 'c'", "MALFORMED_QUERY"),
        ("SELECT Id FROM Account WHERE (Id, Name) > ('a', 'b')", "MALFORMED_QUERY"),
        ("SELECT Id FROM Account LIMIT 5 OFFSET 5", "MALFORMED_QUERY"),
        ("SELECT * FROM Account", "MALFORMED_QUERY"),
        ("SELECT Id FROM Account WHERE Employees > null", "MALFORMED_QUERY"),
    ],
)
def test_the_stub_refuses_what_salesforce_refuses(soql: str, code: str) -> None:
    own = [StubField("Id", "id", False), StubField("SystemModstamp", "datetime", False)]
    with pytest.raises(SoqlRefused) as refused:
        Parser(soql, {"Account": {each.name: each for each in [*own, *FIELDS]}}).query()
    assert refused.value.code == code
