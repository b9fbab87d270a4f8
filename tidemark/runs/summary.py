"""A run as programs get it: the same fields in every system."""

from typing import Any

from tidemark.control import RunRecord
from tidemark.runs.events import RunEnded

# Fields of `detail` that have a place of their own.
PLACED = ("rows", "seconds", "reason")


def run_summary(record: RunRecord) -> dict[str, Any]:
    """What only one system has is under `detail`; no value of state is in it."""
    detail = record.detail
    return {
        "subject": record.subject,
        "run_id": record.run_id,
        "status": record.status,
        "mode": record.mode,
        "reason": record.reason,
        "reason_detail": detail.get("reason"),
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "seconds": detail.get("seconds", {}),
        "snapshot": record.snapshot,
        **({"marker": record.marker} if record.subject.startswith("catalog/") else {}),
        "rows": detail.get("rows", {}),
        "error": record.error,
        "detail": {key: value for key, value in detail.items() if key not in PLACED},
    }


def run_ended(record: RunRecord, seconds: float | None = None) -> RunEnded:
    """The event of a run whose row was closed. Without the seconds that it measured itself, those between its moments."""
    assert record.finished_at is not None, "its row was closed"
    took = (record.finished_at - record.started_at).total_seconds() if seconds is None else seconds
    return RunEnded(
        subject=record.subject,
        run_id=record.run_id,
        status=record.status,
        mode=record.mode,
        reason=record.reason,
        seconds=round(took, 3),
        rows={name: count for name, count in record.detail.get("rows", {}).items() if isinstance(count, int)},
        reads=tuple(record.detail.get("reads", ())),
        writes=tuple(record.detail.get("writes", ())),
        error=record.error,
    )


def no_run(subject: str, status: str, error: str | None) -> dict[str, Any]:
    """The same fields for a subject whose run never began."""
    return {
        "subject": subject,
        "run_id": None,
        "status": status,
        **dict.fromkeys(("mode", "reason", "reason_detail", "started_at", "finished_at")),
        "seconds": {},
        "snapshot": None,
        **({"marker": None} if subject.startswith("catalog/") else {}),
        "rows": {},
        "error": error,
        "detail": {},
    }
