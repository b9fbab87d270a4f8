"""Every error Tidemark raises on purpose.

A message says what happened, to what, and what to do. It never carries a secret or a value of state.
"""

from collections.abc import Iterable
from typing import Self

from tidemark.checks import CheckResult
from tidemark.findings import Finding


class TidemarkError(Exception):
    """Anything that went wrong and has a name. The command line ends with exit code 1."""

    exit_code = 1


class UsageError(TidemarkError):
    """The caller requested something that cannot be: exit code 2."""

    exit_code = 2


class ConfigError(UsageError):
    """The configuration is wrong: file, line, what is allowed."""

    def __init__(self, words: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(words)
        self.findings = tuple(findings)

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Self:
        """All that was found, a line each."""
        findings = tuple(findings)
        return cls("\n".join(map(str, findings)), findings)


class UnknownConnection(UsageError):
    """No connection of that name in the configuration."""


class UnknownRun(UsageError):
    """No run of that id in the history of the connection."""


class UnknownStream(UsageError):
    """No stream of that id in the manifest."""


class UnknownModel(UsageError):
    """No model of that name in the project."""


class QueryInvalid(UsageError):
    """A model's query cannot be read, or lacks a column that the model needs."""


# --- the outside world -------------------------------------------------------------------------------------------------


class SourceError(TidemarkError):
    """A source could not be read."""


class SourceUnreachable(SourceError):
    """Nothing answers at the source's address."""


class SourceRefused(SourceError):
    """The source answered and refused the login."""


class QuotaSpent(SourceError):
    """A source allows no more requests for now, or the share of them that may be used is spent."""


class DuplicateName(SourceError):
    """A source listed the same qualified name twice."""


class ColumnBatchFailed(SourceError):
    """A batch of columns could not be read, retries included."""


class TypeUnsupported(SourceError):
    """A record has a value of a type that cannot be compared between runs."""


class SliceFailed(SourceError):
    """A slice of a stream's window could not be read, retries and smaller pages included."""


class PositionLost(SourceError):
    """A log no longer has the position that state has reached: what lay behind it is gone."""


class StoreError(TidemarkError):
    """The object store failed."""


class ObjectMissing(StoreError):
    """There is no object of that name."""


class ObjectChanged(StoreError):
    """A conditional write lost: somebody else wrote the object first."""


class OutcomeUnknown(StoreError):
    """A conditional write got no answer and could not be read back: it may or may not have happened."""


class StoreIgnoresConditions(StoreError):
    """The S3 service accepts conditional writes and does not obey them."""


class StoreFull(StoreError):
    """No space left where the object store lives."""


class ControlError(TidemarkError):
    """The control database failed."""


class ControlUnreachable(ControlError):
    """The control database cannot be opened."""


class ControlAway(ControlUnreachable):
    """The control database did not answer for a while: it restarts, or the network is down."""


class ControlTooNew(ControlError):
    """A newer version of Tidemark has migrated the control database."""


class DagsterUnreachable(TidemarkError):
    """The database that several hosts keep their Dagster instance in cannot be opened."""


class PortInUse(TidemarkError):
    """Another program listens on the port already."""


class RowSecurityOff(ControlError):
    """The role that Tidemark uses sees past row-level security: PostgreSQL does not keep tenants apart for it."""


class FilesExposed(TidemarkError):
    """Others than their owner may use files that hold progress or keys."""


class LakeError(TidemarkError):
    """The lake failed."""


class LakeUnreachable(LakeError):
    """The catalogue of the lake, or where its files are, does not answer."""


class SparkFailed(TidemarkError):
    """Spark could not do what was requested."""


class UnexpectedFailure(TidemarkError):
    """Something failed that Tidemark has no name for; the log has the details."""


class Interrupted(TidemarkError):
    """A run was stopped by a signal or by a person."""

    exit_code = 130


class TaskLost(TidemarkError):
    """The process of a Spark task was ended from outside."""


class JavaMissing(TidemarkError):
    """Spark needs Java 17 or later."""


# --- state and marks ---------------------------------------------------------------------------------------------------


class StateError(TidemarkError):
    """State and mark do not agree, or a verification failed. Nothing was published."""


class RunInProgress(StateError):
    """Another run of the same subject holds the lease."""


class LeaseLost(StateError):
    """This run's lease was taken over while it was working; it publishes nothing more."""


class RunAbandoned(StateError):
    """The process of a run ended before the run did; a later run closed its row."""


class LostRace(StateError):
    """Another run published first; this one changed nothing."""


class MarkMoved(StateError):
    """The mark is not at the version it was read at."""


class CursorInvalid(StateError):
    """A value is none that the cursor of its stream can have; the message never carries it."""


class CursorBackwards(StateError):
    """The source's own present lies before the committed cursor."""


class SchemaRefused(StateError):
    """The fields of a source are not what the manifest, or a run that is under way, can land."""


class SchemaChangeRefused(StateError, ValueError):
    """A model's query has other columns than its table, and the model's policy does not allow what that would take."""


class ValueMisfit(StateError):
    """A value does not fit the type of the column that it is to be stored in."""


class DuplicateKeys(StateError):
    """New rows of a model share a key, and nothing says which of them wins."""


class ModelStateUnreadable(StateError):
    """The state of a model was written by another version, or is damaged."""


class NotRestorable(StateError):
    """A dropped column, or part of its values, is no longer to be had."""


class StateKeyMissing(StateError):
    """No key to seal state with, or not the one that a value was sealed with."""


class StateSealBroken(StateError):
    """A sealed value of state does not open: another key, an altered value, or the value of another row."""


class MarkerCorrupt(StateError):
    """marker.txt is not one line of UTC ISO 8601."""


class ChecksFailed(StateError):
    """A check on the staged state failed: nothing was published, the marker did not move."""

    def __init__(self, words: str, results: Iterable[CheckResult] = ()) -> None:
        super().__init__(words)
        self.results = tuple(results)


class TooManyRemoved(StateError):
    """A run would remove more tables than the guard allows."""


class TooManyDeleted(StateError):
    """A complete listing of a source lacks more of what is live than the guard allows."""


class PartialRun(StateError):
    """An asset was requested without what it needs from the same run."""
