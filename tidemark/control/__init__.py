"""The control database: runs, marks and leases, each under the address of its subject."""

from tidemark.control.actor import actor
from tidemark.control.database import ControlDatabase
from tidemark.control.leases import HeldLease, Lease, Leases
from tidemark.control.mark_records import AuditRow, Mark, MarkMoment
from tidemark.control.marks import Marks
from tidemark.control.runs import NewestRuns, RunFields, RunLedger, RunRecord
from tidemark.control.sealing import Keyring

__all__ = [
    "AuditRow",
    "ControlDatabase",
    "HeldLease",
    "Keyring",
    "Lease",
    "Leases",
    "Mark",
    "MarkMoment",
    "Marks",
    "NewestRuns",
    "RunFields",
    "RunLedger",
    "RunRecord",
    "actor",
]
