"""connectorx, which two databases are read with: rows to Arrow, its failures by kind."""

from collections.abc import Sequence

import pyarrow as pa


class DriverFailed(Exception):
    """What the driver said. It may quote the address or a value of a record, so it is never shown."""


class ValueUnreadable(DriverFailed):
    """The driver met a value that it has no form for."""


def fetched(url: str, sql: str, session: Sequence[str] = ()) -> pa.Table:
    """The rows of a query, over the binary protocol; `session` is said first on the same connection."""
    import connectorx

    try:
        return connectorx.read_sql(
            url, sql, return_type="arrow", protocol="binary", pre_execution_query=list(session) or None
        )
    except RuntimeError as error:
        raise DriverFailed(str(error)) from None
    except BaseException as error:
        # A panic of the driver is no Exception, and would end the process as Ctrl-C does.
        if type(error).__name__ != "PanicException":
            raise
        raise ValueUnreadable(str(error)) from None
