"""Checks of a staged landing by a second engine: DuckDB over the files that pyiceberg finds."""

from collections.abc import Callable
from dataclasses import replace

from tidemark.checks import CheckResult, failed
from tidemark.connectors.contract import Window
from tidemark.connectors.durations import Duration
from tidemark.connectors.stream import StreamSpec
from tidemark.lake import EVOLVING, LakeReader, SnapshotFiles, parquet

__all__ = ["CHECKS", "CheckResult", "failed", "verify_landing"]

SAMPLED = 1000
MILLISECOND = Duration.parse("PT0.001S")

CHECKS = {
    "key_not_null": "Every record that landed has all parts of its key.",
    "no_duplicate_landing": "No record landed twice, in this run or since the first.",
    "cursor_within_window": "Every cursor lies in the window that was fixed before reading.",
    "counts_add_up": "Rows before + landed = rows staged, and no earlier file is gone.",
}


def verify_landing(
    reader: LakeReader,
    table: str,
    base: int | None,
    staged: int | None,
    landed: int,
    stream: StreamSpec,
    window: Window,
    known: Callable[[str], str],
) -> list[CheckResult]:
    """The verdicts on what this run added. `known` makes a query for hashes that must not come again, from earlier rows."""
    if staged is None:
        return [CheckResult(name, True, "nothing new was read") for name in CHECKS]
    before = reader.files(table, base) if base is not None else None
    after = reader.files(table, staged)
    added = parquet(after.data.keys() - (before.data.keys() if before else set()), EVOLVING)
    # SQLite compares times to the millisecond.
    timed = window.lower is not None and window.lower.timestamp is not None
    wide = replace(window, lower=window.lower.minus(MILLISECOND)) if timed and window.lower is not None else window
    with reader.connect() as db:

        def one(query: str) -> int:
            return int(db.execute(query).fetchall()[0][0] or 0)

        keyless = " OR ".join(f'key."{name}" IS NULL' for name in stream.key)
        ((rows, nameless, different, least, greatest),) = db.execute(
            f"SELECT count(*), count(*) FILTER (operation <> 'truncate' AND ({keyless})), count(DISTINCT content_hash), "
            f"min(cursor), max(cursor) FROM {added}"
        ).fetchall()
        again = 0
        if before is not None:
            again = one(f"SELECT count(*) FROM {added} SEMI JOIN ({known(before.evolving_sql)}) USING (content_hash)")
        # The ends, as text, and some from between: texts may sort otherwise than what they mean.
        some = db.execute(f"SELECT cursor FROM {added} WHERE cursor IS NOT NULL USING SAMPLE {SAMPLED}").fetchall()
        texts = {text for text in (least, greatest, *(text for (text,) in some)) if text is not None}
        outside = sum(stream.parse_cursor(text) not in wide for text in texts) if stream.cursor is not None else 0
    return [
        verdict("key_not_null", nameless, f"{rows} records have their key", "records lack a part of their key"),
        verdict("no_duplicate_landing", rows - different + again, f"{rows} records, each once", "records landed before"),
        verdict("cursor_within_window", outside, "all cursors are in the window", "cursors are outside the window"),
        counts(before, after, rows, landed),
    ]


def verdict(name: str, faults: int, good: str, bad: str) -> CheckResult:
    return CheckResult(name, not faults, good if not faults else f"{faults} {bad}", {"faults": faults})


def counts(before: SnapshotFiles | None, after: SnapshotFiles, rows: int, landed: int) -> CheckResult:
    lost = len((before.data.keys() if before else set()) - after.data.keys())
    passed = rows == landed and not lost
    facts = {"landed by slices": landed, "rows in added files": rows, "earlier files gone": lost}
    return CheckResult("counts_add_up", passed, f"{landed} landed, {rows} staged, {lost} earlier files gone", facts)
