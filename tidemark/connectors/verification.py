"""Checks of a staged landing by a second engine: DuckDB over the files that pyiceberg finds."""

from collections.abc import Callable
from dataclasses import replace

from duckdb import DuckDBPyConnection

from tidemark.checks import CheckResult, failed
from tidemark.connectors.contract import Window
from tidemark.connectors.durations import Duration
from tidemark.connectors.stream import StreamSpec
from tidemark.lake import EVOLVING, LakeReader, files_between, parquet

__all__ = ["CHECKS", "CheckResult", "failed", "verify_landing"]

SAMPLED = 1000
MILLISECOND = Duration.parse("PT0.001S")

LANDED = {
    "key_not_null": "Every record that landed has all parts of its key.",
    "no_duplicate_landing": "No record landed twice, in this run or since the first.",
    "cursor_within_window": "Every cursor lies in the window that was fixed before reading.",
    "counts_add_up": "Rows before + landed = rows staged, and no earlier file is gone.",
}
AT_SOURCE = "count_agrees_with_source"
CHECKS = LANDED | {
    AT_SOURCE: "The source, asked after it was read, has no more records in the window than were read.",
}


def verify_landing(
    reader: LakeReader,
    table: str,
    base: int | None,
    staged: int | None,
    landed: int,
    stream: StreamSpec,
    window: Window,
    known: Callable[[DuckDBPyConnection], str],
) -> list[CheckResult]:
    """The verdicts on what this run added. `known` makes a query for hashes of earlier rows that must not come again."""
    if staged is None:
        return [CheckResult(name, True, "nothing new was read") for name in LANDED]
    came, lost = files_between(reader.existing(table), base, staged)
    added = parquet(came, EVOLVING)
    # SQLite compares times to the millisecond.
    timed = window.lower is not None and window.lower.timestamp is not None
    wide = replace(window, lower=window.lower.minus(MILLISECOND)) if timed and window.lower is not None else window
    with reader.connect() as db:

        def one(query: str) -> int:
            return int(db.execute(query).fetchall()[0][0] or 0)

        keyless = " OR ".join(f"key.{named(name)} IS NULL" for name in stream.key)
        # Rows whose hashes of hashes all differ are different; only if some do not, the hashes themselves are counted.
        ((rows, nameless, different, least, greatest),) = db.execute(
            f"SELECT count(*), count(*) FILTER (operation <> 'truncate' AND ({keyless})), "
            f"count(DISTINCT hash(content_hash)), min(cursor), max(cursor) FROM {added}"
        ).fetchall()
        if different < rows:
            different = one(f"SELECT count(DISTINCT content_hash) FROM {added}")
        again = 0
        if base is not None:
            again = one(f"SELECT count(*) FROM {added} SEMI JOIN ({known(db)}) USING (content_hash)")
        # The ends, as text, and some from between: texts may sort otherwise than what they mean.
        some = db.execute(f"SELECT cursor FROM {added} WHERE cursor IS NOT NULL USING SAMPLE {SAMPLED}").fetchall()
        texts = {text for text in (least, greatest, *(text for (text,) in some)) if text is not None}
        outside = sum(stream.parse_cursor(text) not in wide for text in texts) if stream.cursor is not None else 0
    return [
        verdict("key_not_null", nameless, f"{rows} records have their key", "records lack a part of their key"),
        verdict("no_duplicate_landing", rows - different + again, f"{rows} records, each once", "records landed before"),
        verdict("cursor_within_window", outside, "all cursors are in the window", "cursors are outside the window"),
        counts(len(lost), rows, landed),
    ]


def count_agrees(at_source: int | None, read: int, stream: StreamSpec) -> CheckResult:
    """Records may leave a window while it is read, by being changed. One that comes late must be read by a later run."""
    if at_source is None:
        return CheckResult(AT_SOURCE, True, "the source does not count")
    lacking = max(at_source - read, 0)
    facts = {"at the source": at_source, "read": read}
    if lacking and not stream.safety_window:
        advice = "they came late or were lost, and no `safety_window` reads them again. Run again"
        return CheckResult(AT_SOURCE, False, f"the source has {lacking} more records than were read: {advice}", facts)
    words = f"{lacking} came while it was read, for the safety window" if lacking else f"{read} read, {at_source} there"
    return CheckResult(AT_SOURCE, True, words, facts)


def named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def verdict(name: str, faults: int, good: str, bad: str) -> CheckResult:
    return CheckResult(name, not faults, good if not faults else f"{faults} {bad}", {"faults": faults})


def counts(lost: int, rows: int, landed: int) -> CheckResult:
    passed = rows == landed and not lost
    facts = {"landed by slices": landed, "rows in added files": rows, "earlier files gone": lost}
    return CheckResult("counts_add_up", passed, f"{landed} landed, {rows} staged, {lost} earlier files gone", facts)
