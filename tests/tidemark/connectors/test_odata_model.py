"""What `$metadata` and answers say, without a server."""

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tidemark.connectors.contract import Window
from tidemark.connectors.http import Answer
from tidemark.connectors.kinds._odata_filter import after, behind, bounded, inside, within
from tidemark.connectors.kinds._odata_model import Property, entities
from tidemark.connectors.kinds._odata_records import page_of
from tidemark.connectors.kinds.odata import ODataConnector
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, SourceError

pytestmark = pytest.mark.fast

METADATA = b"""<edmx:Edmx Version="4.0" xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx"><edmx:DataServices>
<Schema Namespace="long.name" Alias="Self" xmlns="http://docs.oasis-open.org/odata/ns/edm">
  <EntityType Name="Base" Abstract="true"><Key><PropertyRef Name="id"/></Key>
    <Property Name="id" Type="Edm.Guid" Nullable="false"/></EntityType>
  <EntityType Name="Thing" BaseType="long.name.Base">
    <Property Name="size" Type="Self.Size"/>
    <Property Name="colour" Type="Self.Colour"/>
    <Property Name="photo" Type="Edm.Stream"/>
    <Property Name="place" Type="Edm.GeographyPoint"/>
    <Property Name="address" Type="long.name.Address"/>
    <Property Name="others" Type="Collection(Self.Address)"/>
    <Property Name="self" Type="Self.Node"/>
    <Property Name="stamps" Type="Collection(Edm.DateTimeOffset)"/>
    <Property Name="wide" Type="Edm.Decimal" Precision="20" Scale="6"/>
    <Property Name="whole" Type="Edm.Decimal" Precision="9"/>
    <Property Name="loose" Type="Edm.Decimal" Scale="variable"/>
    <NavigationProperty Name="parent" Type="long.name.Thing"/>
  </EntityType>
  <TypeDefinition Name="Size" UnderlyingType="Edm.Decimal" Precision="7" Scale="3"/>
  <EnumType Name="Colour"><Member Name="red"/></EnumType>
  <ComplexType Name="Address"><Property Name="city" Type="Edm.String"/></ComplexType>
  <ComplexType Name="Node"><Property Name="inner" Type="Self.Node"/></ComplexType>
  <EntityContainer Name="All"><EntitySet Name="Things" EntityType="Self.Thing"/></EntityContainer>
</Schema></edmx:DataServices></edmx:Edmx>"""


def field(edm: str, type: pa.DataType, name: str = "x", precision: int | None = None) -> Property:
    return Property(name, edm, type, precision=precision)


MOMENT = field("Edm.DateTimeOffset", pa.timestamp("us", tz="UTC"), precision=7)
SECOND = field("Edm.DateTimeOffset", pa.timestamp("us", tz="UTC"))
DAY = field("Edm.Date", pa.date32())
NUMBER = field("Edm.Int64", pa.int64(), "n")


def parsed(*records: dict[str, Any] | str, fields: list[Property]) -> list[dict[str, Any]]:
    rows = ",".join(each if isinstance(each, str) else json.dumps(each) for each in records)
    answer = Answer("http://x/y", httpx.Headers(), f'{{"value":[{rows}]}}'.encode(), "s")
    found: list[dict[str, Any]] = page_of(answer, fields).records.to_pylist()
    return found


def stream(**words: Any) -> StreamSpec:
    return StreamSpec.model_validate({"id": "s", "key": ["n"], "cursor": "x", **words})


# --- $metadata ---------------------------------------------------------------------------------------------------------


def test_types_of_every_sort_have_an_arrow_type() -> None:
    things = entities(METADATA, "s")["Things"]
    assert things.key == ("id",)
    address = pa.struct([("city", pa.string())])
    assert things.schema == pa.schema(
        {
            "id": pa.string(),
            "size": pa.decimal128(7, 3),
            "colour": pa.string(),
            "place": pa.string(),
            "address": address,
            "others": pa.list_(address),
            "self": pa.struct([("inner", pa.string())]),
            "stamps": pa.list_(pa.timestamp("us", tz="UTC")),
            "wide": pa.decimal128(20, 6),
            "whole": pa.decimal128(9, 0),
            "loose": pa.string(),
        }
    )


def test_metadata_that_is_broken_or_of_another_version_is_told() -> None:
    with pytest.raises(SourceError, match="not XML, or broke off"):
        entities(METADATA[:500], "s")
    with pytest.raises(SourceError, match="not that of OData v4"):
        entities(METADATA.replace(b"docs.oasis-open.org/odata/ns/edm", b"schemas.microsoft.com/ado/2008/09/edm"), "s")


# --- records -----------------------------------------------------------------------------------------------------------


def test_no_digit_is_lost_whether_numbers_come_as_numbers_or_as_text() -> None:
    fields = [
        field("Edm.Decimal", pa.decimal128(20, 6), "wide", precision=20),
        field("Edm.Decimal", pa.decimal128(15, 2), "price", precision=15),
        field("Edm.Decimal", pa.string(), "loose"),
        field("Edm.Int64", pa.int64(), "big"),
        field("Edm.Double", pa.float64(), "ratio"),
    ]
    exact = {
        "wide": Decimal("12345678901234.123457"),
        "price": Decimal("9999999999999.99"),
        "loose": "0.1234567890123456789",
        "big": 9007199254740993,
        "ratio": 0.1,
    }
    numbers = (
        '{"wide":12345678901234.123457,"price":9999999999999.99,"loose":0.1234567890123456789,'
        '"big":9007199254740993,"ratio":0.1}'
    )
    texts = {name: str(value) for name, value in exact.items()}
    assert parsed(numbers, texts, fields=fields) == [exact, exact]
    assert parsed('{"price":9999999999999.99,"big":1}', fields=[fields[1]]) == [{"price": exact["price"]}]


def test_timestamps_of_every_form_are_instants() -> None:
    given = [
        "2025-01-01T00:00:00Z",
        "2025-01-01T01:00:00.5+01:00",
        "2025-01-01T00:00:00.1234567Z",
        "9999-12-31T23:59:59.999Z",
    ]
    found = [each["x"] for each in parsed(*({"x": each} for each in given), {"x": None}, fields=[MOMENT])]
    assert found == [
        datetime(2025, 1, 1, tzinfo=UTC),
        datetime(2025, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC),
        datetime(2025, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        None,
    ]


def test_other_types_come_as_what_they_are() -> None:
    (item,) = (field("Edm.String", pa.string(), "item"),)
    city = field("Edm.String", pa.string(), "city")
    fields = [
        field("Edm.Binary", pa.binary(), "b"),
        field("Edm.TimeOfDay", pa.string(), "t"),
        field("Edm.Date", pa.date32(), "d"),
        field("Edm.Double", pa.float64(), "f"),
        field("s.Colour", pa.string(), "e"),
        Property("tags", "Edm.String", pa.list_(pa.string()), parts=(item,), many=True),
        Property("home", "s.Address", pa.struct([("city", pa.string())]), parts=(city,)),
    ]
    given: list[dict[str, Any]] = [
        {"b": "AP8Q-_8=", "t": "12:13:14.1234567", "d": "2025-02-03", "f": "INF", "e": {"at": 1}, "tags": ["x", None],
         "home": {"city": "Rom"}},
        {"b": "AP8Q+/8", "t": "12:13", "d": None, "f": 1, "e": "red", "tags": [], "home": None},
        {},
    ]  # fmt: skip
    data = b"\x00\xff\x10\xfb\xff"
    assert parsed(*given, fields=fields) == [
        {"b": data, "t": "12:13:14.1234567", "d": date(2025, 2, 3), "f": float("inf"), "e": '{"at":1}',
         "tags": ["x", None], "home": {"city": "Rom"}},
        {"b": data, "t": "12:13", "d": None, "f": 1.0, "e": "red", "tags": [], "home": None},
        {"b": None, "t": None, "d": None, "f": None, "e": None, "tags": None, "home": None},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (NUMBER, "secret"), (NUMBER, 2**70), (MOMENT, "secret"), (DAY, "secret"), (DAY, 5),
        (field("Edm.String", pa.string()), 7), (field("Edm.Boolean", pa.bool_()), "secret"),
        (field("Edm.Decimal", pa.decimal128(5, 2), precision=5), "1.234"), (field("Edm.Binary", pa.binary()), 1),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_told_by_its_field_and_not_quoted(declared: Property, value: Any) -> None:
    with pytest.raises(SourceError, match=f"a value of '{declared.name}' does not fit its declared type") as told:
        parsed({declared.name: value}, fields=[declared])
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("body", [b"[1]", b'{"error":{}}', b'{"value":[1]}', b'{"value":{}}'])
def test_json_without_records_is_told(body: bytes) -> None:
    with pytest.raises(SourceError, match="no list of records"):
        page_of(Answer("http://x/y", httpx.Headers(), body, "s"), [NUMBER])


# --- filters -----------------------------------------------------------------------------------------------------------


def window(lower: Any, upper: Any, spec: StreamSpec, closed: bool = False) -> Window:
    return Window(*(None if each is None else spec.parse_cursor(each) for each in (lower, upper)), closed)


def test_bounds_are_written_so_that_no_server_leaves_out_what_is_inside() -> None:
    spec = stream()
    fine = window("2025-01-01T00:00:00.1234Z", "2025-01-01T00:00:09.0001Z", spec)
    assert bounded([MOMENT], fine, None) == ("x ne null and x ge 2025-01-01T00:00:00.123Z and x lt 2025-01-01T00:00:09.001Z")
    assert bounded([SECOND], fine, None) == "x ne null and x ge 2025-01-01T00:00:00Z and x lt 2025-01-01T00:00:10Z"
    whole = window("2025-01-01T01:00:00+01:00", "2025-01-02T00:00:00Z", spec)
    assert bounded([MOMENT], whole, None) == (
        "x ne null and x ge 2025-01-01T00:00:00.000Z and x lt 2025-01-02T00:00:00.000Z"
    )
    # A day is in the window if it begins there.
    assert bounded([DAY], fine, None) == "x ne null and x ge 2025-01-02 and x lt 2025-01-02"
    assert bounded([DAY], whole, None) == "x ne null and x ge 2025-01-01 and x lt 2025-01-02"


def test_what_a_coarse_filter_lets_in_is_cut_off() -> None:
    spec = stream()
    column = pa.array(["2025-01-01T00:00:00.1233Z", "2025-01-01T00:00:00.1234Z", "2025-01-01T00:00:09.0001Z"])
    records = pa.record_batch({"x": column.cast(pa.timestamp("us", tz="UTC"))})
    fine = window("2025-01-01T00:00:00.1234Z", "2025-01-01T00:00:09.0001Z", spec)
    assert inside(records, [MOMENT], fine, None).to_pylist() == [False, True, False]


def test_composite_bounds_compare_part_by_part() -> None:
    spec = stream(cursor=["n", "m"], cursor_type="integer")
    fields = [NUMBER, field("Edm.Int64", pa.int64(), "m")]
    given = window(["1", "5"], ["3", "2"], spec, closed=True)
    assert bounded(fields, given, None) == (
        "n ne null and m ne null and (n gt 1 or (n eq 1 and m ge 5)) and (n lt 3 or (n eq 3 and m le 2))"
    )
    records = pa.record_batch({"n": [1, 1, 2, 3, 3], "m": [4, 5, 0, 2, 3]})
    assert inside(records, fields, given, None).to_pylist() == [False, True, True, True, False]
    prefix = window(["1"], ["3"], spec, closed=True)
    assert bounded(fields, prefix, None) == "n ne null and m ne null and n ge 1 and n le 3"
    mixed = stream(cursor=["x", "n"], cursor_type=["timestamp", "integer"])
    lower = window(["2025-01-01T00:00:00Z", "5"], None, mixed)
    # Which values a server takes for equal is not known, so all of the tick is asked for.
    assert bounded([MOMENT, NUMBER], lower, None) == "x ne null and n ne null and x ge 2025-01-01T00:00:00.000Z"
    early = pa.record_batch({"x": pa.array([1735689600_000_000] * 2).cast(MOMENT.type), "n": [4, 5]})
    assert inside(early, [MOMENT, NUMBER], lower, None).to_pylist() == [False, True]


def test_keysets_and_ticks() -> None:
    text = field("Edm.String", pa.string(), "t")
    assert after([text, NUMBER], ["it's", 5]) == "(t gt 'it''s' or (t eq 'it''s' and n gt 5))"
    moment = datetime(2025, 1, 1, 0, 0, 0, 999_000, tzinfo=UTC)
    assert within(MOMENT, moment) == "x ge 2025-01-01T00:00:00.999Z and x lt 2025-01-01T00:00:01.000Z"
    assert behind(MOMENT, moment) == "x ge 2025-01-01T00:00:01.000Z"
    assert (within(NUMBER, 5), behind(NUMBER, 5)) == ("n eq 5", "n gt 5")


# --- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "credentials", "told"),
    [
        ({"adress": "x"}, {}, "unknown: adress. It has: timeout, url"),
        ({}, {}, "`url` is missing"),
        ({"url": "ftp://x/y"}, {}, "must begin with http:// or https://"),
        ({"url": "http://u:secret@x/y"}, {}, "A login belongs into `credentials`"),
        ({"url": "http://x/y?sap-client=secret"}, {}, "without \\? and #"),
        ({"url": "http://x/y", "timeout": 0}, {}, "`timeout` must be a number of seconds"),
        ({"url": "http://x/y", "timeout": True}, {}, "`timeout` must be a number of seconds"),
        ({"url": "http://x/y"}, {"user": "secret"}, "it takes `user` and `password`, or `token`, or none. There are: user"),
        (
            {"url": "http://x/y"},
            {"token": "secret", "user": "secret", "password": "secret"},
            "There are: password, token, user",
        ),
    ],
)
def test_wrong_settings_are_told_without_a_secret(settings: Any, credentials: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        ODataConnector(settings, credentials)
    assert "secret" not in str(refused.value)


def test_a_connector_can_be_pickled_after_it_was_used() -> None:
    connector = ODataConnector({"url": "http://x/y"}, {"token": "secret"})
    connector._http()
    again = pickle.loads(pickle.dumps(connector))
    assert (again.settings, again._source) == (connector.settings, None)
    connector.close()
