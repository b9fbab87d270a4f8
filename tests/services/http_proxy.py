"""The proxy with faults, as the product ships it."""

from tidemark.connectors.proxy import WEB_PAGE, Answered, CutBody, CutGzip, FaultProxy, Late, Reset

__all__ = ["WEB_PAGE", "Answered", "CutBody", "CutGzip", "FaultProxy", "Late", "Reset"]
