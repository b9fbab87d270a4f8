"""Tables fit the terminal, and a name can be copied from them in one piece."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from tidemark.cli import output, tables
from tidemark.cli.tables import ago, print_facts, print_table, short

pytestmark = pytest.mark.fast

NAME = "shop/people/campaign_1/begins_on_a_day_of_the_year"
RUN = "0b6c2f1e-8a3d-4c11-9f00-000000000001"


@pytest.fixture
def shown(monkeypatch, capsys):
    """What a terminal of 80 columns gets."""
    narrow = Console(width=80)
    monkeypatch.setattr(tables, "console", narrow)
    monkeypatch.setattr(output, "console", narrow)
    return lambda: capsys.readouterr().out.splitlines()


def test_a_long_sentence_goes_on_in_the_next_line_and_the_name_before_it_stays_whole(shown):
    words = "dataType: character varying(40) → character varying(50), maxLength: 40 → 50"
    print_table("differences", ["name", "kind", "change", "attributes"], [[NAME, "column", "changed", words]])
    lines = shown()
    assert max(map(len, lines)) <= 80
    assert any(NAME in line for line in lines)
    assert len(lines) > 3


def test_names_that_do_not_fit_next_to_each_other_stand_below_each_other(shown):
    other = NAME.replace("campaign_1", "campaign_2")
    print_table("lineage", ["column", "comes from", "read by"], [["begins_on", NAME, other]])
    lines = shown()
    assert max(map(len, lines)) <= 80
    assert lines[1:] == ["begins_on", f"  comes from: {NAME}", f"  read by: {other}"]


def test_a_name_with_a_column_behind_it_is_no_sentence_and_stays_whole(shown):
    source = "bronze.default.deliveries.deliveries_lines__latest: record.delivery"
    print_table("", ["column", "comes from", "in the end from"], [["delivery", "silver.delivery_lines: delivery", source]])
    assert any(source.split()[0] in line for line in shown())


def test_an_age_is_not_broken(shown):
    rows = [[f"stream/default/{'x' * 35}", "ok", "48 s", "48 s", "13 min"]]
    print_table("", ["subject", "state", "ran", "mark", "due in"], rows)
    assert shown()[1].split("  ")[-1].strip() == "13 min"


def test_numbers_are_on_the_right(shown):
    print_table("", ["name", "rows"], [["a", 5], ["b", 12_000]])
    assert [line.rstrip() for line in shown()] == ["name    rows", "a          5", "b     12,000"]


def test_a_table_without_rows_has_its_columns(shown):
    print_table("0 differences", ["name", "kind"], [])
    assert [line.rstrip() for line in shown()] == ["0 differences", "name  kind"]


def test_a_run_is_shown_by_the_beginning_of_its_id(shown):
    print_facts("catalog/shop", {"published run": RUN, "marker": None})
    assert RUN[:8] in (text := "\n".join(shown()))
    assert RUN not in text


def test_as_much_of_an_id_is_shown_as_tells_it_from_the_others():
    other = RUN[:10] + "x" + RUN[11:]
    assert short(RUN) == RUN[:8]
    assert short(RUN, [RUN, "another"]) == RUN[:8]
    assert short(RUN, [RUN, other]) == RUN[:11]
    assert short(other, [RUN, other]) == other[:11]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (119, "119 s"), (190, "3 min"), (7_200, "2 h"), (200_000, "2 days"), (-5, "0 s")],
)
def test_an_age_has_one_unit_in_plain_words(seconds, words):
    now = datetime(2026, 3, 1, tzinfo=UTC)
    assert ago(now - timedelta(seconds=seconds), now) == words
