"""What goes into a connector and comes out of it."""

import json
import pickle
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.connectors import registry
from tidemark.connectors.contract import Connector, InputState, OutputState, Slice, Window, fixed_window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.registry import connector_for, known_kinds
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import ConfigError, CursorInvalid

pytestmark = pytest.mark.fast


class Nothing(Connector):
    """A source without records."""

    def streams(self) -> list[Any]:
        return []

    def discover(self, stream: StreamSpec) -> Any:
        return None

    def now(self, stream: StreamSpec) -> None:
        return None

    def count(self, stream: StreamSpec, window: Window) -> int:
        return 0

    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        return []

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[Any]:
        return iter(())

    def close(self) -> None:
        pass


@pytest.fixture
def no_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone when it ends."""
    monkeypatch.setattr(Connector, "_by_kind", {})


def stream(**given: Any) -> StreamSpec:
    return StreamSpec.model_validate({"id": "sap.gl", "key": ["id"], "cursor": "changed", **given})


def test_an_input_state_is_the_object_of_the_seed() -> None:
    state = InputState("sap.s4hana.gl_accounts", "LastUpdated", "2025-09-30T23:59:59Z")
    assert json.dumps(state.to_json(), separators=(",", ":")) == (
        '{"stream_id":"sap.s4hana.gl_accounts","cursor_field":"LastUpdated","cursor_value":"2025-09-30T23:59:59Z"}'
    )
    assert InputState.from_json(state.to_json()) == state


def test_an_output_state_is_the_object_of_the_seed() -> None:
    state = OutputState("sap.s4hana.gl_accounts", "LastUpdated", "2025-10-02T11:20:45Z", 12894)
    assert json.dumps(state.to_json(), separators=(",", ":")) == (
        '{"stream_id":"sap.s4hana.gl_accounts","cursor_field":"LastUpdated",'
        '"cursor_value":"2025-10-02T11:20:45Z","records_emitted":12894}'
    )
    assert OutputState.from_json(state.to_json()) == state


def test_state_is_read_only_and_stays_out_of_logs() -> None:
    states = (
        InputState("s", "f", "2025-09-30"),
        OutputState("s", "f", "2025-09-30", 1),
        Slice(0, "2025-09-30", "2025-10-01", detail={"from": "2025"}),
        Window(stream().parse_cursor("2025-09-30")),
    )
    for state in states:
        assert "2025" not in f"{state} {state!r}"
        with pytest.raises(FrozenInstanceError):
            setattr(state, fields(state)[-1].name, "x")


@given(
    st.builds(
        Slice,
        st.integers(0),
        st.none() | st.text(),
        st.none() | st.text(),
        st.booleans(),
        st.booleans(),
        st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.text())),
    )
)
def test_a_slice_travels_as_json_and_as_a_pickle(slice: Slice) -> None:
    assert Slice.from_json(json.loads(json.dumps(slice.to_json()))) == slice
    assert pickle.loads(pickle.dumps(slice)) == slice


def test_a_window_goes_from_the_cursor_less_the_safety_window_to_now_less_the_hold_back() -> None:
    spec = stream(safety_window="PT5M", hold_back="PT30S")
    committed, now = spec.parse_cursor("2025-10-02T11:20:45Z"), spec.parse_cursor("2025-10-02T12:00:00Z")
    window = fixed_window(spec, committed, now)
    assert (str(window.lower), str(window.upper), window.closed) == ("2025-10-02T11:15:45Z", "2025-10-02T11:59:30Z", False)
    assert window.lower in window  # type: ignore[operator]
    assert window.upper not in window  # type: ignore[operator]


def test_a_window_that_ends_at_the_greatest_number_takes_it_in() -> None:
    spec = stream(cursor_type="integer")
    window = fixed_window(spec, spec.parse_cursor(7), spec.parse_cursor(9))
    assert [number for number in range(12) if spec.parse_cursor(number) in window] == [7, 8, 9]
    again = fixed_window(spec, spec.parse_cursor(9), spec.parse_cursor(9))
    assert not again.empty


def test_without_state_a_window_begins_at_the_baseline_or_at_the_beginning() -> None:
    assert str(fixed_window(stream(baseline="2025-01-01", safety_window="P1D"), None, None).lower) == "2025-01-01"
    assert fixed_window(stream(), None, None) == Window()
    assert fixed_window(stream(cursor=None), None, None) == Window()


def test_a_window_that_ends_before_it_begins_is_empty() -> None:
    spec = stream()
    late, early = spec.parse_cursor("2025-10-02"), spec.parse_cursor("2025-10-01")
    assert fixed_window(spec, late, early).empty
    assert fixed_window(spec, late, late).empty
    assert not fixed_window(spec, early, late).empty
    assert not fixed_window(spec, None, late).empty


def test_the_bounds_of_a_slice_are_cursors_again() -> None:
    spec = stream(cursor=["changed", "id"], cursor_type=["timestamp", "integer"])
    window = Slice(0, '["2025-10-01"]', '["2025-10-02",7]', closed=True).window(spec)
    assert spec.parse_cursor(["2025-10-01", -5]) in window
    assert spec.parse_cursor(["2025-10-02", 7]) in window
    assert spec.parse_cursor(["2025-10-02", 8]) not in window


def test_a_stream_without_cursor_has_no_cursor_values() -> None:
    with pytest.raises(CursorInvalid, match=r"sap\.gl: the stream has no cursor"):
        stream(cursor=None).parse_cursor("2025-10-01")


def test_a_stream_spec_travels_to_other_processes() -> None:
    spec = stream(safety_window="PT5M", baseline="2025-10-01")
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_connector_is_found_by_its_kind(no_kinds: None) -> None:
    class Quiet(Nothing):
        kind = "quiet"

    connector = connector_for("quiet", {"url": "x"}, {"password": "sesame"})
    assert isinstance(connector, Quiet)
    assert connector.credentials == {"password": "sesame"}
    assert "sesame" not in repr(connector)
    assert "quiet" in known_kinds()


def test_a_kind_that_is_not_there_gets_the_nearest_match(no_kinds: None) -> None:
    with pytest.raises(ConfigError, match=r"no connector of the kind 'odta'\. Did you mean 'odata'"):
        connector_for("odta", {}, {})


def test_the_kinds_of_the_seed_are_known() -> None:
    assert {"cdc", "files", "kafka", "odata", "salesforce", "sql"} <= set(known_kinds())


def test_a_third_party_adds_a_kind_by_an_entry_point(
    no_kinds: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "harbour-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: harbour\nVersion: 1.0\n")
    points = "[tidemark.connectors]\nharbour = harbour_connector\nbroken = no_such_module_at_all\n"
    (package / "entry_points.txt").write_text(points)
    imports = "from tests.tidemark.connectors.test_connector_contract import Nothing\n"
    (tmp_path / "harbour_connector.py").write_text(f"{imports}class Harbour(Nothing):\n    kind = 'harbour'\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._installed.cache_clear()
    try:
        assert {"harbour", "broken"} <= set(known_kinds())
        assert connector_for("harbour", {}, {}).kind == "harbour"
    finally:
        registry._installed.cache_clear()
        sys.modules.pop("harbour_connector", None)


def test_cursors_of_a_stream_know_its_name() -> None:
    with pytest.raises(CursorInvalid, match=r"^sap\.gl: a value of the cursor 'changed'"):
        stream().parse_cursor(7)
    assert isinstance(stream().parse_cursor("2025-10-01"), Cursor)
