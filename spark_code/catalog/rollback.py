"""Going back is a run: it has a diff, is checked, and publishes the old rows as a new snapshot. The marker goes first."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa

from spark_code.catalog.diff import GONE_SCHEMA, IncrementalDiff
from spark_code.catalog.subject import CatalogSubject
from spark_code.parts import PART_ROWS, Parts, PartsWriter, regrouped
from tidemark.catalog.diff_check import names_below
from tidemark.catalog.marker import EARLIEST, format_marker, parse_marker
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.rows import STATE_SCHEMA, Kind, Label
from tidemark.checks import CheckResult
from tidemark.control import RunRecord
from tidemark.errors import StateError, UsageError
from tidemark.publication import Publication, claim, contents_of, publish
from tidemark.runs import Mode, Reason, Run

DIFF = "diff_leads_to_state"
ROWS_AT_ONCE = 20_000
LISTED, READ = (Kind.DATABASE, Kind.SCHEMA), (Kind.TABLE, Kind.COLUMN)


def roll_back(subject: CatalogSubject, to: RunRecord, run_id: str | None = None) -> RunRecord:
    """Makes the state that a run left behind the published one again. Returns the ledger's row of the rollback."""
    if to.snapshot is None or to.marker is None:
        raise UsageError(f"{subject.address}: run {to.run_id} is {to.status} and left no state to go back to.")
    with Run(subject, run_id or str(uuid4())) as run:
        version = subject.control.marks.version(subject.address)
        found, reader, name = subject.published(), subject.platform.reader, subject.layout.table
        target = reader.existing(name).snapshot_by_id(to.snapshot)
        if target is None or found.snapshot is None:
            raise StateError(
                f"{subject.address}: the state of run {to.run_id} is no longer kept: upkeep removed it. "
                f"`tidemark catalog history {subject.name}` lists the runs that can be gone back to."
            )
        # What the next run must know is in the row from the beginning, whoever closes it.
        detail = {**to.detail, "rolled back to": to.run_id}
        words = f"to run {to.run_id}"
        run.decide(Mode.ROLLBACK, Reason.REQUESTED, words, base_snapshot=found.snapshot, marker=to.marker, detail=detail)
        branch = claim(reader.existing(name), run.run_id)
        back = Way(subject, run.run_id, found.snapshot, to.snapshot)
        with run.step("diff"):
            counts = back.write_diff(to)
        with run.step("verify"):
            run.require([back.check_diff()])
        run.confirm()
        # First the mark, then the state: a crash in between leaves an old mark on a newer state, which is safe.
        with run.step("marker"):
            moment, reason = parse_marker(to.marker), f"rollback to run {to.run_id}"
            read = subject.marker.read()
            subject.move_marker(read, moment, found.snapshot, run.run_id, reason, expected=version, back=True)
        with run.step("publish"):
            table = reader.existing(name)
            record = {"marker": to.marker}
            contents = contents_of(table, target)
            publication = Publication(run.run_id, found.snapshot, contents, record=record, branch=branch)
            snapshot = publish(table, publication)
            run.published = True
        assert snapshot is not None, "a target has rows"
        with run.step("mirror"):
            manifest = subject.mirror.bring_to(name, snapshot, to.run_id, None, confirm=run.confirm)
        detail |= {"labels": counts, "entities": manifest.counts}
        return run.finish("published", snapshot=snapshot, marker=to.marker, detail=detail)


@dataclass(frozen=True)
class Way:
    """From one snapshot to another: what a consumer must do to follow."""

    subject: CatalogSubject
    run_id: str
    before: int
    after: int

    @contextmanager
    def _states(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """For queries over the rows of both states, `before` and `after`, and the keys of units that differ, `touched`."""
        reader, table = self.subject.platform.reader, self.subject.layout.table
        states = {"before": self.before, "after": self.after}
        with reader.connect() as db:
            for name, snapshot in states.items():
                db.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM {reader.files(table, snapshot).sql}")
            db.execute(TOUCHED)
            yield db
            for name in ("touched", *states):
                db.execute(f"DROP {'TABLE' if name == 'touched' else 'VIEW'} {name}")

    def write_diff(self, to: RunRecord) -> dict[str, int]:
        """Writes the diff of the rollback where those of other runs are. Returns the tables by label."""
        with self._states() as db:
            listed = {kind: self._kept(db, f"{kind}s", ARRIVING.format(kind=kind), "label") for kind in LISTED}
            read = [self._kept(db, f"{kind}s_read", ARRIVING.format(kind=kind), "kind") for kind in READ]
            gone = self._kept(db, "deleted", LEAVING, "kind", GONE_SCHEMA)
            labels = dict(db.execute(LABELS).fetchall())
        counts: dict[str, int] = {str(label): labels.get(label, 0) for label in Label}
        counts |= {str(Label.REMOVED): gone.count(Kind.TABLE), "schemas and databases": 0}
        diff = IncrementalDiff(
            plan=self._plan(to, counts),
            labels=counts,
            databases=listed[Kind.DATABASE],
            schemas=listed[Kind.SCHEMA],
            columns=read[0] + read[1],
            deleted=gone,
        )
        self.subject.diff_writer(self.run_id).write(diff)
        return counts

    def _kept(
        self, db: duckdb.DuckDBPyConnection, name: str, query: str, tally: str, schema: pa.Schema = STATE_SCHEMA
    ) -> Parts:
        """The rows of a query, put into the store some at a time."""
        prefix = f"{self.subject.layout.extracted(self.run_id)}/{name}"
        writer = PartsWriter(self.subject.store, schema, prefix, tally)
        for rows in regrouped(db.sql(query).to_arrow_reader(ROWS_AT_ONCE), schema, PART_ROWS):
            writer.add(rows)
        return writer.written()

    def _plan(self, to: RunRecord, counts: dict[str, int]) -> RunPlan:
        detail: dict[str, Any] = to.detail
        assert to.marker is not None, "looked at before"
        return RunPlan(
            connection=self.subject.name,
            run_id=self.run_id,
            mode=Mode.ROLLBACK,
            reason=Reason.REQUESTED,
            base_snapshot=self.before,
            marker_etag=None,
            next_marker=parse_marker(to.marker),
            since=None,
            identity=detail.get("identity") or "",
            scope=detail.get("scope") or {"include": ["*"], "exclude": []},
            unlisted=detail.get("unlisted") or {},
            counts=counts,
            tables_before=0,
        )

    def check_diff(self) -> CheckResult:
        """The names that a consumer will read are those that the two states differ in, looked at by another query."""
        store, root = self.subject.store, self.subject.layout.diff(self.run_id)
        found: dict[str, int] = {}
        with self._states() as db:
            for name, (below, wanted) in EXPECTED.items():
                db.execute("CREATE TEMP TABLE found (kind VARCHAR, name UBIGINT)")
                for names in names_below(store, *(f"{root}/{folder}" for folder in below)):
                    db.register("arrived", names)
                    db.execute("INSERT INTO found SELECT kind, hash(qualified_name) FROM arrived")
                    db.unregister("arrived")
                counted, differing = db.execute(DIFFERING.format(wanted=wanted)).fetchall()[0]
                found |= {name: counted, f"{name} differing": differing}
                db.execute("DROP TABLE found")
        faults = found["fresh differing"] + found["gone differing"]
        summary = f"{found['fresh']} fresh and {found['gone']} deleted entities lead to the state"
        if faults:
            summary = f"{faults} entities of the diff do not agree with the two states"
        return CheckResult(DIFF, not faults, summary, {"faults": faults})


# A unit differs if its rows do, in number or in content. Its key is that of its columns as well.
TOUCHED = """
CREATE TEMP TABLE touched AS
WITH rows AS (SELECT 'b' AS of, * FROM before UNION ALL SELECT 'a' AS of, * FROM after),
     sums AS (SELECT of, unit_key, count(*) AS n, sum(hash(kind, qualified_name, entity)::HUGEINT) AS content
              FROM rows GROUP BY ALL),
     b AS (FROM sums WHERE of = 'b'), a AS (FROM sums WHERE of = 'a')
SELECT unit_key FROM b FULL JOIN a USING (unit_key) WHERE (a.n, a.content) IS DISTINCT FROM (b.n, b.content)
"""
# All schemas and databases, as in every diff, and tables that differ with all of their columns.
ARRIVING = f"""
SELECT a.* REPLACE (
    CASE WHEN a.unit_key IN (SELECT unit_key FROM before) THEN '{Label.UPDATED}' ELSE '{Label.CREATED}' END AS label)
FROM after AS a WHERE a.kind = '{{kind}}' AND (a.kind IN ('database', 'schema') OR a.unit_key IN (FROM touched))
ORDER BY unit_key, ordinal
"""
LABELS = f"SELECT label, count(*) FROM ({ARRIVING.format(kind=Kind.TABLE)}) GROUP BY ALL"
LEAVING = """
SELECT kind, qualified_name, unit, entity FROM before ANTI JOIN after USING (kind, qualified_name)
ORDER BY kind, qualified_name
"""
# The same by comparing entities one by one: a table whose columns differ is fresh as a whole.
NEW_OR_OTHER = """
SELECT a.kind, a.qualified_name FROM after AS a
WHERE a.unit IN (
    SELECT coalesce(n.unit, o.unit) FROM before AS o FULL JOIN after AS n USING (kind, qualified_name)
    WHERE o.entity IS DISTINCT FROM n.entity)
"""
# What the files of a diff should name, and below which folders: by kind and name.
EXPECTED = {
    "fresh": (
        ("table", "column"),
        f"SELECT kind, qualified_name FROM ({NEW_OR_OTHER}) WHERE kind IN ('table', 'column')",
    ),
    "gone": (("delete",), "SELECT kind, qualified_name FROM before ANTI JOIN after USING (kind, qualified_name)"),
}
DIFFERING = """
WITH wanted AS (SELECT DISTINCT kind, hash(qualified_name) AS name FROM ({wanted})),
     named AS (SELECT DISTINCT kind, name FROM found),
     balance AS (SELECT *, 1 AS n FROM wanted UNION ALL SELECT *, -1 FROM named)
SELECT (SELECT count(*) FROM found),
       (SELECT count(*) FROM (SELECT 1 FROM balance GROUP BY kind, name HAVING sum(n) <> 0))
"""


def rewind_marker(subject: CatalogSubject, to: datetime, reason: str = "rewound by hand") -> RunRecord:
    """Moves the marker back, never forward: a marker ahead of its state would skip changes."""
    if to < EARLIEST:
        raise UsageError(f"{subject.address}: a marker cannot be earlier than {EARLIEST:%Y-%m-%d}.")
    with Run(subject, str(uuid4())) as run:
        version, published = subject.control.marks.version(subject.address), subject.published()
        if published.snapshot is None or published.recorded_marker is None:
            raise UsageError(f"{subject.address}: nothing is published yet, so there is no marker to rewind.")
        if to > published.recorded_marker:
            raise UsageError(f"{subject.address}: a marker can only go back, and that moment is later than the state.")
        # What the next run must know of the last one is in the row from the beginning, whoever closes it.
        last, marker = published.last_run.detail if published.last_run else {}, format_marker(to)
        run.decide(Mode.REWIND, Reason.REQUESTED, base_snapshot=published.snapshot, marker=marker, detail=last)
        run.confirm()
        with run.step("marker"):
            read = subject.marker.read()
            subject.move_marker(read, to, published.snapshot, run.run_id, reason, expected=version, back=True)
        return run.finish("unchanged", snapshot=published.snapshot, marker=marker, detail=last)
