"""What was listed, corrected by what was read."""

import pytest

from tidemark.catalog.names import unit_key
from tidemark.catalog.rows import Kind, Label, Row, as_table
from tidemark.catalog.settled import settle
from tidemark.catalog.units import LABELS, UnitLabels, changes_nothing

pytestmark = pytest.mark.fast


def row(name: str, label: str = "UPDATED", kind: str = Kind.TABLE) -> Row:
    return Row(kind, unit_key(name), 0, name, name, "id", "digest", label, "run", "entity")


def listed(*rows: Row) -> UnitLabels:
    return UnitLabels.of([as_table(rows)])


def labels(units: UnitLabels, *names: str) -> dict[str, str]:
    by_key = {key: LABELS[code].value for key, code in zip(units.keys.tolist(), units.labels.tolist(), strict=True)}
    return {name: by_key[unit_key(name)] for name in names if unit_key(name) in by_key}


@pytest.mark.parametrize("label", ["UPDATED", "CREATED"])  # in a full run everything is CREATED
def test_a_table_of_the_state_that_was_gone_when_it_was_read_is_unknown(label: str) -> None:
    settled = settle(listed(row("a", label), row("b", "NO CHANGE")), ["a"], {"a", "b"})
    assert labels(settled.units, "a", "b") == {"a": "UNKNOWN", "b": "NO CHANGE"}
    assert settled.vanished == ("a",)
    assert changes_nothing(settled.units.counts())


def test_a_new_table_that_was_gone_when_it_was_read_leaves_no_trace() -> None:
    settled = settle(listed(row("a", "CREATED"), row("b", "NO CHANGE")), ["a"], {"b"})
    assert labels(settled.units, "a", "b") == {"b": "NO CHANGE"}
    assert settled.vanished == ("a",)


def test_nothing_of_another_source_is_carried() -> None:
    settled = settle(listed(row("a", "CREATED"), row("b", "CREATED")), ["a", "b"], {"a"}, source_replaced=True)
    assert labels(settled.units, "a", "b") == {"a": "REMOVED"}


def test_when_nothing_vanished_the_listing_stands() -> None:
    units = listed(row("a", "NO CHANGE"), row("b", "REMOVED"), row("c", "UNKNOWN"))
    assert settle(units, [], set()).units is units


def test_every_label_of_a_settled_unit_is_counted() -> None:
    units = listed(row("a"), row("b"), row("s", "UPDATED", Kind.SCHEMA), row("d", "UNKNOWN", Kind.DATABASE))
    settled = settle(units, ["b"], {"a", "b"})
    counts = {name: count for name, count in settled.units.counts().items() if count}
    assert counts == {Label.UPDATED: 1, Label.UNKNOWN: 1, "schemas and databases": 1}


def test_keys_are_those_of_the_labels_that_are_asked_for() -> None:
    units = listed(row("a"), row("b", "REMOVED"), row("c", "NO CHANGE"), row("d", "CREATED"), row("e", "UNKNOWN"))
    assert set(units.keys_of([Label.UPDATED, Label.REMOVED]).tolist()) == {unit_key("a"), unit_key("b")}
    assert set(units.touched.tolist()) == {unit_key("a"), unit_key("b"), unit_key("d")}


def test_no_units_at_all_are_counted_as_none() -> None:
    assert not any(UnitLabels.of([]).counts().values())
