"""The control database: runs, marks, leases and the state of streams."""

from tidemark.control.actor import actor
from tidemark.control.database import ControlDatabase
from tidemark.control.leases import Lease, Leases
from tidemark.control.marks import AuditRow, Mark, Marks
from tidemark.control.runs import RunFields, RunLedger, RunRecord
from tidemark.control.sealing import Keyring
from tidemark.control.stream_records import StreamMove, StreamState
from tidemark.control.streams import StateRegistry

__all__ = [
    "AuditRow",
    "ControlDatabase",
    "Keyring",
    "Lease",
    "Leases",
    "Mark",
    "Marks",
    "RunFields",
    "RunLedger",
    "RunRecord",
    "StateRegistry",
    "StreamMove",
    "StreamState",
    "actor",
]
