"""What a run does and why, in every system: two closed lists. What varies (a column, a policy) goes next to the reason."""

from enum import StrEnum


class Mode(StrEnum):
    """What a run does."""

    FULL = "full"
    INCREMENTAL = "incremental"
    REBUILD = "rebuild"
    VIEW = "view"
    ROLLBACK = "rollback"
    REWIND = "rewind"
    RESTORE = "restore"
    BACKFILL = "backfill"
    UPKEEP = "upkeep"


class Reason(StrEnum):
    """Why it does that."""

    REQUESTED = "requested"
    STATE_FOUND = "state found"
    NO_STATE = "no state"
    RESUMED = "resumed"
    # Markers and cursors.
    INCREMENTAL_OFF = "incremental extraction is off"
    NO_MARKER = "no marker"
    CORRUPT_MARKER = "corrupt marker"
    FUTURE_MARKER = "marker in the future"
    MARKER_AHEAD = "marker ahead of state"
    SOURCE_REPLACED = "source replaced"
    CURSOR_BACKWARDS = "cursor ran backwards"
    # Models.
    NO_TABLE = "no table"
    TABLE_GONE = "the table is gone"
    TABLE_ROLLED_BACK = "the table was rolled back"
    NOTHING_CHANGED = "nothing that it reads has changed"
    ALWAYS_REBUILT = "a table is rebuilt by every run"
    WAS_REBUILT = "it was rebuilt by every run before"
    VIEW = "a view is its query"
    STRATEGY_CHANGED = "the strategy changed"
    OPTIONS_CHANGED = "the options of the strategy changed"
    QUERY_CHANGED = "the query changed"
    NO_LAST_VALUE = "no last value"
    SCHEMA_CHANGED = "the schema changed"
    WINDOW = "a window is rebuilt"
