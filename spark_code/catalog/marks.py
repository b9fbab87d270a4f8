"""The mark of a connection: its record in the control database, and marker.txt behind it."""

from datetime import datetime

from spark_code.catalog.subject import CatalogSubject
from tidemark.catalog.marker import Marker, format_marker
from tidemark.control import actor
from tidemark.faults import fault_point


def move_marker(subject: CatalogSubject, read: Marker, to: datetime, snapshot: int, run_id: str | None, reason: str) -> None:
    """Records the move, with an audit row, and then swaps marker.txt for the one that was read.

    In this order a crash in between leaves an old marker.txt, which is safe; a marker.txt without a record is refused.
    """
    mark = subject.control.marks.get(subject.mark)
    subject.control.marks.move(
        subject.mark,
        mark.version if mark else None,
        format_marker(to),
        snapshot=snapshot,
        run_id=run_id,
        actor=actor(),
        reason=reason,
    )
    fault_point("marks.before_marker")
    subject.marker.swap(read, to)
