"""What a plan labels, and what it leaves for the next run to know."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tidemark.catalog.entities import EntityWriter, signal_of
from tidemark.catalog.labelled import Labelling
from tidemark.catalog.labels import Before
from tidemark.catalog.marker import format_marker
from tidemark.catalog.packs import DatabaseFacts, Listing, SchemaFacts, TableFacts
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.published import SIGNALS, Published
from tidemark.catalog.rows import Kind
from tidemark.catalog.scope import Scope
from tidemark.control import RunRecord
from tidemark.runs import Mode, Reason

pytestmark = pytest.mark.fast

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WRITER = EntityWriter("clocked", "1")
OPEN, SHY = "default/clocked/1/db/open", "default/clocked/1/db/shy"


def table(schema: str, name: str, digest: str = "new", changed_at: datetime | None = None) -> TableFacts:
    return TableFacts("db", schema, name, "table", "1", digest, None, None, 0, changed_at=changed_at)


def listing(*tables: TableFacts, shy: bool = True) -> Listing:
    schemas = (SchemaFacts("db", "open", None, True, None), SchemaFacts("db", "shy", None, not shy, "no right"))
    return Listing("here", NOON, (DatabaseFacts("db", None),), schemas, tables)


def state(*tables: TableFacts) -> pa.Table:
    fields = [
        {
            "kind": Kind.TABLE,
            "qualified_name": WRITER.name("db", each.schema, each.name),
            "object_id": each.object_id,
            "digest": signal_of(each),
        }
        for each in tables
    ]
    return pa.Table.from_pylist(fields, pa.schema([(name, pa.string()) for name in SIGNALS]))


def labels(
    listed: Listing, previous: pa.Table, before: Before, mode: Mode = Mode.INCREMENTAL, **more: Any
) -> dict[str, str]:
    batches = Labelling(listed, WRITER, Scope(), before, mode, "run", **more).units(previous)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {row["qualified_name"].split("/", 4)[4]: row["label"] for row in rows if row["kind"] == Kind.TABLE}


def plan(**changes: Any) -> RunPlan:
    usual: dict[str, Any] = {
        "connection": "shop", "run_id": "run-2", "mode": Mode.INCREMENTAL, "reason": Reason.STATE_FOUND,
        "base_snapshot": 1, "marker_etag": None, "next_marker": NOON + HOUR, "since": NOON, "identity": "here",
        "scope": {"include": ["*"], "exclude": []}, "unlisted": {}, "counts": {}, "tables_before": 2,
        "previous_marker": NOON,
    }  # fmt: skip
    return RunPlan(**usual | changes)


def after(plan: RunPlan, *vanished: str) -> Published:
    """What the next run finds on record."""
    detail = plan.on_record(vanished)
    record = RunRecord(
        run_id=plan.run_id, subject="catalog/s", dagster_run=None, status="published", mode=None, reason=None,
        base_snapshot=None, snapshot=1, marker=None, started_at=NOON, finished_at=NOON, error=None, detail=detail,
    )  # fmt: skip
    return Published(1, plan.run_id, NOON, record)


def test_tables_of_a_schema_that_cannot_be_listed_are_unknown() -> None:
    previous = state(table("open", "a", "old"), table("shy", "b"), table("open", "c"))
    told = labels(listing(table("open", "a")), previous, Before(Scope()))
    assert told == {"open/a": "UPDATED", "shy/b": "UNKNOWN", "open/c": "REMOVED"}


@pytest.mark.parametrize("mode", Mode)
def test_nothing_that_another_server_hides_is_carried(mode: Mode) -> None:
    told = labels(listing(), state(table("shy", "b")), Before(Scope()), mode, source_replaced=True)
    assert told == {"shy/b": "REMOVED"}


def test_by_the_clock_a_schema_is_compared_from_when_it_was_last_listed() -> None:
    now = listing(table("open", "a", changed_at=NOON - HOUR), table("shy", "b", changed_at=NOON - HOUR), shy=False)
    previous = state(table("open", "a", "old"), table("shy", "b", "old"))
    waiting = Before(Scope(), frozenset({SHY}), NOON, {SHY: NOON - 2 * HOUR})
    assert labels(now, previous, waiting) == {"open/a": "NO CHANGE", "shy/b": "UPDATED"}
    not_long_enough = Before(Scope(), frozenset({SHY}), NOON, {SHY: NOON})
    assert labels(now, previous, not_long_enough)["shy/b"] == "NO CHANGE"


def test_by_the_clock_what_waits_since_nobody_knows_when_is_compared_whatever_its_clock_says() -> None:
    now, previous = listing(table("shy", "b", changed_at=NOON - 999 * HOUR), shy=False), state(table("shy", "b", "old"))
    for name in (SHY, f"{SHY}/b"):
        assert labels(now, previous, Before(Scope(), since=NOON, waiting={name: None})) == {"shy/b": "UPDATED"}


def test_a_listing_must_be_complete_from_the_earliest_moment_that_something_waits_for() -> None:
    assert Before(Scope(), since=NOON).earliest == NOON
    assert Before(Scope(), since=NOON, waiting={SHY: NOON - HOUR, OPEN: NOON + HOUR}).earliest == NOON - HOUR
    assert Before(Scope(), since=NOON, waiting={SHY: None}).earliest is None


def test_the_moment_when_a_schema_was_last_listed_stays_until_it_is_listed_again() -> None:
    first = plan(unlisted={SHY: "run-2"})
    assert first.last_listed == {SHY: NOON}
    assert after(first).waiting == {SHY: NOON}
    again = plan(unlisted={SHY: "run-2"}, previous_marker=NOON + HOUR, waiting=after(first).waiting)
    assert after(again).waiting == {SHY: NOON}
    assert after(again).before(NOON + HOUR, hours=3).since_of(SHY, f"{SHY}/b") == NOON - 3 * HOUR
    assert after(plan(waiting=after(again).waiting)).waiting == {}


def test_a_marker_that_was_rewound_counts_for_what_is_waiting_too() -> None:
    rewound = plan(unlisted={SHY: "run-1"}, previous_marker=NOON - 9 * HOUR, waiting={SHY: NOON})
    assert rewound.last_listed == {SHY: NOON - 9 * HOUR}


@pytest.mark.parametrize("unknown", [{"previous_marker": None}, {"waiting": {SHY: None}}])
def test_a_moment_that_is_not_known_stays_so(unknown: dict[str, Any]) -> None:
    assert after(plan(unlisted={SHY: "run-1"}, **unknown)).waiting == {SHY: None}


def test_a_record_of_an_earlier_version_has_schemas_without_a_moment() -> None:
    found = after(plan(unlisted={SHY: "run-1"}))
    assert found.last_run
    del found.last_run.detail["last listed"]
    assert found.waiting == {SHY: None}


def test_a_table_that_could_not_be_read_waits_as_long_as_its_schema_did() -> None:
    assert after(plan(), f"{OPEN}/a").waiting == {f"{OPEN}/a": NOON}
    assert after(plan(waiting={OPEN: NOON - HOUR}), f"{OPEN}/a").waiting == {f"{OPEN}/a": NOON - HOUR}
    assert after(plan(waiting={f"{OPEN}/a": NOON - HOUR}), f"{OPEN}/a").waiting == {f"{OPEN}/a": NOON - HOUR}


def test_a_table_that_waits_goes_on_waiting_while_its_schema_cannot_be_listed() -> None:
    hidden = plan(unlisted={SHY: "run-2"}, waiting={f"{SHY}/b": NOON - HOUR, f"{OPEN}/a": NOON - HOUR})
    assert after(hidden).waiting == {SHY: NOON, f"{SHY}/b": NOON - HOUR}


def test_the_marker_counts_only_as_far_as_a_run_that_was_finished() -> None:
    found = after(plan())
    assert found.last_run
    assert found.seen_until(NOON) == NOON  # it has none on record
    finished = replace(found, last_run=replace(found.last_run, marker=format_marker(NOON)))
    assert finished.seen_until(NOON + HOUR) == NOON
    assert finished.seen_until(NOON - HOUR) == NOON - HOUR
    assert finished.seen_until(None) is None
    assert replace(found, last_run=None).seen_until(NOON) == NOON


def test_a_plan_is_read_as_it_was_written_and_so_is_one_of_an_earlier_version() -> None:
    written = plan(unlisted={SHY: "run-2"}, waiting={SHY: None}, source_replaced=True)
    assert RunPlan.model_validate_json(written.model_dump_json()) == written
    assert '"last_listed"' in written.model_dump_json()
    later = {"previous_marker", "waiting", "last_listed", "source_replaced"}
    assert RunPlan.model_validate_json(written.model_dump_json(exclude=later)).waiting == {}
