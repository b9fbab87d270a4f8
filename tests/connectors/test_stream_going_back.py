"""Bronze back to what a run left, its checks, and what landed between two runs. No Spark is needed for any of it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from platform_assets.connectors.moving import rewound, taken_away
from spark_code.connectors.audit import audit, landed_between
from spark_code.connectors.plan import EMITTED_AT
from spark_code.connectors.rollback import roll_back_stream
from spark_code.connectors.subject import StreamSubject
from spark_code.platform import Platform
from tidemark.config import load_config
from tidemark.connectors.bronze import bronze_schema
from tidemark.connectors.manifests import find_manifest
from tidemark.control import ControlDatabase, RunRecord
from tidemark.errors import RunInProgress, StateError, UsageError
from tidemark.lake import RUN_ID
from tidemark.runs import Mode, Reason, Run

FIELDS = pa.schema([("id", pa.int64()), ("changed", pa.timestamp("us", tz="UTC"))])
START = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "t1/shop/orders"


def opened(folder: Path) -> StreamSubject:
    config = load_config(folder / "tidemark.yaml")
    manifest = find_manifest(config, "shop")
    return StreamSubject(Platform(config), "t1", manifest, manifest.stream("orders"))


class Orders:
    """A stream whose runs land days by pyiceberg."""

    def __init__(self, folder: Path) -> None:
        stream = {"id": "orders", "key": ["id"], "cursor": "changed"}
        manifest = {"connector": "shop", "kind": "sql", "settings": {"url": "sqlite:///shop.db"}, "streams": [stream]}
        (folder / "shop.yaml").write_text(yaml.safe_dump(manifest))
        given = {"store": "store", "connectors": ["shop.yaml"], "tenants": ["t1"]}
        (folder / "tidemark.yaml").write_text(yaml.safe_dump(given))
        (folder / "store").mkdir()
        self.subject = opened(folder)
        self.reader = self.subject.platform.reader
        SqlCatalog("lake", **{**self.subject.platform.lake_settings.for_python(), "init_catalog_tables": "true"})
        for namespace in ("bronze", "bronze.t1", "bronze.t1.shop"):
            self.reader.catalog.create_namespace(namespace)
        self.reader.catalog.create_table(self.subject.place.table, bronze_schema(FIELDS, ["id"]))
        self.emitted = START

    def row(self, id: int | None, day: int, run_id: str, operation: str = "upsert") -> dict[str, Any]:
        changed = START + timedelta(days=day)
        text = changed.isoformat().replace("+00:00", "Z")
        digest = sha256(f"{id} {text} {operation}".encode()).digest()
        return {
            "stream": "orders",
            "emitted_at": self.emitted,
            "cursor": text,
            "key": {"id": id},
            "record": {"id": id, "changed": changed},
            "key_hash": sha256(str(id).encode()).digest(),
            "content_hash": digest,
            "run_id": run_id,
            "operation": operation,
            "arrival": 0,
        }

    def ran(self, run_id: str, *rows: tuple[int | None, int] | tuple[int | None, int, str], moves: bool = True) -> RunRecord:
        """A run that lands these ids, each as of a day."""
        subject, self.emitted = self.subject, self.emitted + timedelta(hours=1)
        with Run(subject, run_id) as run:
            run.decide(Mode.INCREMENTAL, Reason.STATE_FOUND)
            table = self.reader.existing(subject.place.table)
            landed = pa.Table.from_pylist(
                [self.row(row[0], row[1], run_id, *row[2:]) for row in rows], table.schema().as_arrow()
            )
            summary = {RUN_ID: run_id, EMITTED_AT: str(int(self.emitted.timestamp() * 1_000_000))}
            table.append(landed, snapshot_properties=summary)
            snapshot = self.reader.published(subject.place.table).snapshot_id
            state = subject.state()
            if moves:
                subject.marks.move(
                    subject.address,
                    state.version if state else None,
                    max(landed["cursor"].to_pylist()),
                    field="changed",
                    snapshot=snapshot,
                    run_id=run_id,
                    actor="ann@ship",
                    reason="run",
                )
            return run.finish("published", snapshot=snapshot)

    @property
    def ids(self) -> list[int]:
        rows = self.reader.existing(self.subject.place.table).scan().to_arrow()
        return sorted(each["id"] for each in rows["key"].to_pylist())

    @property
    def cursor(self) -> str | None:
        state = self.subject.state()
        return state.value[:10] if state else None


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    made = Orders(tmp_path)
    yield made
    made.subject.platform.control.close()


def failed(orders: Orders) -> list[str]:
    return [each.name for each in audit(orders.subject) if not each.passed]


@pytest.mark.fast
def test_bronze_and_state_are_those_that_the_run_left(orders):
    first = orders.ran("r1", (1, 0), (2, 1))
    orders.ran("r2", (3, 2))
    back = roll_back_stream(orders.subject, first, "wrong numbers")

    assert (orders.ids, orders.cursor) == ([1, 2], "2026-01-02")
    assert (back.mode, back.status, back.detail["rolled back to"]) == ("rollback", "published", "r1")
    move = orders.subject.marks.audit(orders.subject.address)[0]
    assert (move.kind, move.run_id, move.reason) == ("rewind", back.run_id, "wrong numbers")
    assert failed(orders) == []
    summary = orders.reader.published(orders.subject.place.table).summary.additional_properties
    assert summary[EMITTED_AT] == str(int(orders.emitted.timestamp() * 1_000_000)), "time does not go back"


@pytest.mark.fast
def test_a_run_that_left_no_state_is_gone_back_to_without_one(orders):
    first = orders.ran("r1", (1, 0), moves=False)
    orders.ran("r2", (2, 1))
    roll_back_stream(orders.subject, first, "x")
    assert (orders.ids, orders.cursor) == ([1], None)


@pytest.mark.fast
def test_the_state_is_the_one_of_then_also_if_the_run_did_not_move_it(orders):
    orders.ran("r1", (1, 3))
    late = orders.ran("r2", (2, 1), moves=False)
    orders.ran("r3", (3, 5))
    roll_back_stream(orders.subject, late, "x")
    assert (orders.ids, orders.cursor) == ([1, 2], "2026-01-04")


@pytest.mark.fast
def test_what_landed_between_two_runs_is_counted(orders):
    first = orders.ran("r1", (1, 0), (2, 1))
    second = orders.ran("r2", (1, 2), (3, 2), (2, 3, "delete"))
    told = landed_between(orders.subject, first, second)
    assert (told["versions"], told["deletions"], told["keys"], told["rows_gone"]) == (2, 1, 3, 0)
    told = landed_between(orders.subject, second, first)
    assert (told["versions"], told["rows_gone"]) == (0, 3)
    orders.subject.control.runs.begin(orders.subject.address, "r3")
    lost = orders.subject.control.runs.finish("r3", "failed", error="x")
    with pytest.raises(UsageError, match="r3 is failed"):
        landed_between(orders.subject, first, lost)


# --- checks -------------------------------------------------------------------------------------------------------------


@pytest.mark.fast
def test_bronze_that_is_sound_passes_every_check(orders):
    with pytest.raises(StateError, match="nothing is published yet"):
        audit(orders.subject)
    orders.ran("r1", (1, 0), (2, 1))
    orders.ran("r2", (1, 2))
    assert failed(orders) == []


@pytest.mark.fast
@pytest.mark.parametrize(
    ("rows", "check"),
    [
        ([(None, 2)], "key_not_null"),
        ([(3, 2), (3, 2)], "no_duplicate_landing"),
        ([(2, 1)], "no_duplicate_landing"),
        ([(3, 2, "merge")], "operation_known"),
    ],
)
def test_every_check_finds_its_fault(orders, rows, check):
    orders.ran("r1", (1, 0), (2, 1))
    orders.ran("r2", *rows)
    assert failed(orders) == [check]


@pytest.mark.fast
def test_a_state_that_is_ahead_of_all_that_landed_is_found(orders):
    orders.ran("r1", (1, 0))
    subject = orders.subject
    subject.marks.move(
        subject.address, 1, "2027-01-01T00:00:00Z", field="changed", run_id=None, actor="bob@ship", reason="by hand"
    )
    assert failed(orders) == ["state_not_ahead"]


# --- the state by hand -----------------------------------------------------------------------------------------------


class Reports:
    """A stream of files, whose connector keeps a state that nobody can compare."""

    def __init__(self, folder: Path) -> None:
        reports = {"id": "reports", "key": ["id"], "source": "*.jsonl"}
        manifest = {"connector": "drop", "kind": "files", "settings": {"root": str(folder)}, "streams": [reports]}
        (folder / "drop.yaml").write_text(yaml.safe_dump(manifest))
        given = {"store": "store", "connectors": ["drop.yaml"], "tenants": ["t1"]}
        self.config = folder / "tidemark.yaml"
        self.config.write_text(yaml.safe_dump(given))
        self.control = ControlDatabase(load_config(self.config).control)
        self.marks = self.control.sealed_marks("t1")

    def ran(self, *seen: str) -> None:
        """A run that leaves a checkpoint of these files."""
        state = self.marks.get(REPORTS)
        version, value = state.version if state else None, json.dumps(seen)
        self.marks.move(REPORTS, version, value, field="_file", run_id=seen[-1], actor="ann@ship", reason="run")

    @property
    def state(self) -> list[str] | None:
        found = self.marks.get(REPORTS)
        return json.loads(found.value) if found else None

    def rewind(self, version: int, reason: str = "look again") -> int:
        return int(rewound(self.config, "t1/drop/reports", None, version, reason, dry_run=False)["version"])

    def reset(self, reason: str = "start again") -> None:
        taken_away(self.config, "t1/drop/reports", reason)


REPORTS = "stream/t1/drop/reports"


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[Reports]:
    made = Reports(tmp_path)
    yield made
    made.control.close()


@pytest.mark.fast
def test_a_state_that_nobody_can_compare_goes_back_only_to_where_it_came_from(reports):
    reports.ran("a")
    reports.ran("a", "b")
    assert reports.rewind(1) == 3
    assert reports.state == ["a"]
    with pytest.raises(UsageError, match="can only go back"):
        reports.rewind(2)
    reports.ran("a", "b", "c")
    reports.rewind(1)
    assert reports.state == ["a"], "it came from there, by way of the rewind"
    assert [move.kind for move in reports.marks.audit(REPORTS)] == ["rewind", "commit", "rewind", "commit", "commit"]


@pytest.mark.fast
def test_after_a_reset_every_state_is_ahead(reports):
    reports.ran("a")
    reports.reset()
    with pytest.raises(UsageError, match="nothing to rewind"):
        reports.rewind(1)
    reports.ran("b")
    with pytest.raises(UsageError, match="can only go back"):
        reports.rewind(1)
    assert reports.state == ["b"]


@pytest.mark.fast
def test_a_cursor_that_was_reset_is_not_rewound(orders):
    orders.ran("r1", (1, 0))
    config, marks = orders.subject.platform.config.path, orders.subject.marks
    taken_away(config, NAME, "start again")
    with pytest.raises(UsageError, match="nothing to rewind"):
        rewound(config, NAME, None, 1, "back", dry_run=False)
    assert (orders.cursor, [move.kind for move in marks.audit(orders.subject.address)]) == (None, ["reset", "commit"])


@pytest.mark.fast
def test_the_state_of_a_stream_that_is_running_is_not_moved_by_hand(reports):
    reports.ran("a")
    with reports.control.leases.hold(REPORTS, "another"):
        with pytest.raises(RunInProgress, match="run another is in progress"):
            reports.rewind(1)
        with pytest.raises(RunInProgress, match="run another is in progress"):
            reports.reset()
    assert (reports.state, reports.marks.version(REPORTS)) == (["a"], 1)
    assert reports.control.leases.held() == []
