"""Checks and numbers of published Bronze, by a second engine: DuckDB over the files that pyiceberg finds."""

from typing import Any

from spark_code.connectors.subject import StreamSubject
from tidemark.checks import CheckResult
from tidemark.connectors.bronze import Operation
from tidemark.connectors.verification import named, verdict
from tidemark.control import RunRecord
from tidemark.errors import StateError, UsageError

# A version of a key that is the same as the one before it landed twice.
REPEATED = """
SELECT count(*) FROM (
    SELECT content_hash = lag(content_hash) OVER (PARTITION BY key_hash ORDER BY emitted_at, arrival) AS same FROM bronze)
WHERE same
"""


def audit(subject: StreamSubject) -> list[CheckResult]:
    """The checks of a landing that can be asked of all that has landed, and whether the state is ahead of it."""
    reader, table, stream = subject.platform.reader, subject.place.table, subject.described
    published = reader.published(table)
    if published is None:
        raise StateError(f"{subject.address}: nothing is published yet. `tidemark stream run {subject.name}`.")
    rows = reader.files(table, published.snapshot_id).evolving_sql
    keyless = " OR ".join(f"key.{named(name)} IS NULL" for name in stream.key)
    known = ", ".join(f"'{each}'" for each in Operation)
    with reader.connect() as db:

        def one(query: str) -> int:
            return int(db.execute(f"WITH bronze AS (SELECT * FROM {rows}) {query}").fetchall()[0][0] or 0)

        count = one("SELECT count(*) FROM bronze")
        nameless = one(f"SELECT count(*) FROM bronze WHERE operation <> 'truncate' AND ({keyless})")
        twice = count - one("SELECT count(*) FROM (SELECT DISTINCT run_id, content_hash FROM bronze)")
        repeated = one(REPEATED) if stream.cursor is not None else 0
        strange = one(f"SELECT count(*) FROM bronze WHERE operation IS NULL OR operation NOT IN ({known})")
        cursors = [text for (text,) in db.execute(f"SELECT DISTINCT cursor FROM {rows} WHERE cursor IS NOT NULL").fetchall()]
    return [
        verdict("key_not_null", nameless, f"{count} records have their key", "records lack a part of their key"),
        verdict("no_duplicate_landing", twice + repeated, f"{count} records, each once", "records landed twice"),
        verdict("operation_known", strange, "all operations are known", "records have an unknown operation"),
        state_not_ahead(subject, cursors),
    ]


def state_not_ahead(subject: StreamSubject, cursors: list[str]) -> CheckResult:
    """A state that is later than all that landed would skip records. Of a checkpoint only the connector can say that."""
    name, stream, state = "state_not_ahead", subject.described, subject.state()
    if state is None:
        return CheckResult(name, True, "there is no state: the next run reads everything")
    if stream.cursor is None:
        return CheckResult(name, True, "the connector keeps its own progress")
    reached = stream.parse_cursor(state.value)
    ahead = not any(stream.parse_cursor(text) >= reached for text in cursors)
    return CheckResult(name, not ahead, "the state is later than all that landed" if ahead else "the state has landed")


def landed_between(subject: StreamSubject, before: RunRecord, after: RunRecord) -> dict[str, Any]:
    """How Bronze differs between what two runs left: versions and deletions that came, their keys, rows that are gone."""
    reader, table = subject.platform.reader, subject.place.table
    sides = {}
    for name, run in (("before", before), ("after", after)):
        if run.snapshot is None:
            raise UsageError(f"{subject.address}: run {run.run_id} is {run.status} and left nothing to compare.")
        sides[name] = f"(SELECT * FROM {reader.files(table, run.snapshot).evolving_sql})"
    counted = "count(*), count(DISTINCT key_hash), count(*) FILTER (operation = 'delete')"
    difference = "SELECT {} FROM {} AS one ANTI JOIN {} AS other USING (run_id, content_hash)"
    with reader.connect() as db:
        came = db.execute(difference.format(counted, sides["after"], sides["before"])).fetchall()[0]
        gone = db.execute(difference.format("count(*)", sides["before"], sides["after"])).fetchall()[0][0]
    return {
        "from_run": before.run_id,
        "to_run": after.run_id,
        "versions": came[0] - came[2],
        "deletions": came[2],
        "keys": came[1],
        "rows_gone": gone,
    }
