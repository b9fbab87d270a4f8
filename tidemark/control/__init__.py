"""The control database: runs, marks and leases of all five systems."""

from tidemark.control.actor import actor
from tidemark.control.database import ControlDatabase
from tidemark.control.leases import Lease, Leases
from tidemark.control.marks import AuditRow, Mark, Marks
from tidemark.control.runs import RunFields, RunLedger, RunRecord

__all__ = [
    "AuditRow",
    "ControlDatabase",
    "Lease",
    "Leases",
    "Mark",
    "Marks",
    "RunFields",
    "RunLedger",
    "RunRecord",
    "actor",
]
