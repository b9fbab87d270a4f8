"""The seven policies: from a difference of schemas to steps, in the order they are done. Nothing is done here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyiceberg.types import ListType, MapType, StructType

from tidemark.errors import SchemaChangeRefused
from tidemark.models.compare import Change, SchemaDiff, same, widens
from tidemark.models.hashes import digest
from tidemark.models.spec import REBUILDING, Policy

StepKind = Literal["add", "widen", "cast", "keep", "skip", "convert", "rename", "drop", "rebuild"]
# What only adds comes first, what takes away comes last.
ORDER: tuple[StepKind, ...] = ("add", "widen", "cast", "keep", "skip", "convert", "rename", "drop", "rebuild")
DESTRUCTIVE: tuple[StepKind, ...] = ("convert", "drop", "rebuild")
NESTED = (StructType, ListType, MapType)


@dataclass(frozen=True)
class SchemaStep:
    """One thing that is done to the table, or to new rows, because of one change."""

    kind: StepKind
    change: Change
    words: str
    to_name: str | None = None

    @property
    def destructive(self) -> bool:
        """Whether something that readers have seen is gone afterwards."""
        return self.kind in DESTRUCTIVE

    @property
    def name(self) -> str:
        return self.change.name


@dataclass(frozen=True)
class Decision:
    """What the policy makes of a difference."""

    steps: tuple[SchemaStep, ...] = ()
    warnings: tuple[str, ...] = ()
    rebuild: Policy | None = None

    def of(self, *kinds: StepKind) -> tuple[SchemaStep, ...]:
        return tuple(step for step in self.steps if step.kind in kinds)

    @property
    def changes_table(self) -> bool:
        return bool(self.of("add", "widen", "convert", "rename", "drop"))

    @property
    def standing(self) -> str | None:
        """A digest of the differences that the table is left with; None if there are none."""
        changes = [f"{step.kind} {step.change.told()}" for step in self.of("skip", "keep", "cast")]
        return digest("; ".join(changes)) if changes else None

    @property
    def renames(self) -> dict[str, str]:
        """The table's old name of a column → the name it is to have."""
        return {step.name: step.to_name for step in self.of("rename") if step.to_name}


@dataclass(frozen=True)
class Guard:
    """What the policy must know of the model besides the difference."""

    model: str
    keys: tuple[str, ...] = ()
    filter_column: str | None = None
    partition_columns: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    # Whether new rows are put in the place of others, and take nothing over from them.
    replaces_rows: bool = False

    def refusal(self, column: str) -> str | None:
        """Why the column must not go, if it must not."""
        roles = {"part of the key": self.keys, "a partition column": self.partition_columns}
        roles["the filter column"] = (self.filter_column,) if self.filter_column else ()
        return next((role for role, names in roles.items() if column.lower() in map(str.lower, names)), None)


def decided(diff: SchemaDiff, policy: Policy, guard: Guard) -> Decision:
    """The steps of the policy for this difference; SchemaChangeRefused if it allows none."""
    if not diff:
        return Decision()
    if policy == "fail":
        raise refused_by_fail(diff, guard)
    if policy in REBUILDING:
        return Decision(tuple(_rebuilt(diff, policy)), rebuild=policy)
    renames = _asked_renames(diff, guard) if policy == "sync_all_columns" else {}
    steps, warnings = [], []
    for change in diff.changes:
        step = _renamed(change, renames, guard) if change in renames or change in renames.values() else None
        if change in renames.values():
            continue  # reported with the old name
        step = step or _step(change, policy, guard)
        steps.append(step)
        if step.kind in ("skip", "drop"):
            warnings.append(f"{guard.model}: {step.words}")
        if step.kind == "keep" and guard.replaces_rows:
            lose = "stays, but rows that delete_insert puts in place of others lose their value"
            warnings.append(f"{guard.model}: {step.name} {lose}")
    warnings += [f"{guard.model}: {_looks(old, new)}" for old, new in diff.looks_renamed if not renames]
    return Decision(tuple(sorted(steps, key=lambda step: ORDER.index(step.kind))), tuple(warnings))


def refused_by_fail(diff: SchemaDiff, guard: Guard) -> SchemaChangeRefused:
    hints = "".join(f" {_looks(old, new)}" for old, new in diff.looks_renamed)
    return SchemaChangeRefused(
        f"{guard.model}: the query's columns are not the table's, and the policy is `fail`: {diff.told()}.{hints} "
        "Nothing was written. Change the query back, or choose another `on_schema_change`."
    )


def _rebuilt(diff: SchemaDiff, policy: Policy) -> Iterator[SchemaStep]:
    words = {
        "full_refresh": "the table is rebuilt from the whole query",
        "full_incremental_refresh": "the table is rebuilt in chunks",
        "recreate_empty": "the table is re-created without rows",
    }[policy]
    for change in diff.changes:
        yield SchemaStep("rebuild", change, f"{change.told()}: {words}")


def _step(change: Change, policy: Policy, guard: Guard) -> SchemaStep:
    if change.kind == "new":
        if policy == "ignore":
            return SchemaStep("skip", change, f"{change.name} of the query is not stored: the policy is `ignore`")
        return SchemaStep("add", change, f"{change.name} ({change.query_type}) is added; old rows are NULL in it")
    if change.kind == "missing":
        return _missing(change, policy, guard)
    if change.in_place and policy in ("append_new_columns", "sync_all_columns"):
        return SchemaStep("widen", change, f"{change.name} is widened from {change.table_type} to {change.query_type}")
    _refuse_inconvertible(change, guard)
    if policy == "sync_all_columns":
        words = (
            f"{change.name} is converted from {change.table_type} to {change.query_type}, if every value converts exactly"
        )
        return SchemaStep("convert", change, words)
    words = f"{change.name} is stored as {change.table_type}; a value that does not fit is an error"
    return SchemaStep("cast", change, words)


def _missing(change: Change, policy: Policy, guard: Guard) -> SchemaStep:
    if policy != "sync_all_columns":
        return SchemaStep("keep", change, f"{change.name} stays; new rows are NULL in it")
    why = None if change.nested else guard.refusal(change.column)
    if why:
        raise SchemaChangeRefused(
            f"{guard.model}: the query no longer has {change.name}, and sync_all_columns would drop it, but it is {why}. "
            "Nothing was written. Put it back into the query, or rebuild the table with full_refresh."
        )
    return SchemaStep("drop", change, f"{change.name} ({change.table_type}) is dropped, and can be restored")


def _refuse_inconvertible(change: Change, guard: Guard) -> None:
    """A struct is no number: there is nothing to convert."""
    if isinstance(change.table_type, NESTED) or isinstance(change.query_type, NESTED):
        raise SchemaChangeRefused(
            f"{guard.model}: {change.name} is {change.table_type} in the table and {change.query_type} in the query, and "
            "neither converts to the other. Nothing was written. Change the query, or rebuild the table with full_refresh."
        )


def _asked_renames(diff: SchemaDiff, guard: Guard) -> dict[Change, Change]:
    """The pairs of missing and new columns that the model calls one column."""
    missing = {change.name.lower(): change for change in diff.missing_columns if not change.nested}
    new = {change.name.lower(): change for change in diff.new_columns if not change.nested}
    pairs = [(missing.get(old.lower()), new.get(now.lower())) for old, now in guard.renames.items()]
    return {old: now for old, now in pairs if old is not None and now is not None}


def _renamed(change: Change, renames: Mapping[Change, Change], guard: Guard) -> SchemaStep | None:
    if change not in renames:
        return None
    now = renames[change]
    old_type, new_type = change.table_type, now.query_type
    assert old_type is not None, "a missing column has a type"
    assert new_type is not None, "a new column has a type"
    if not same(old_type, new_type) and not widens(new_type, old_type):
        raise SchemaChangeRefused(
            f"{guard.model}: {change.name} ({old_type}) cannot be renamed to {now.name} ({new_type}): the types differ. "
            "Nothing was written. Rename it in one run and change its type in the next."
        )
    return SchemaStep("rename", change, f"{change.name} is called {now.name} from now on; its values are kept", now.name)


def _looks(old: str, new: str) -> str:
    return f"{old} → {new} looks like a rename; `renames: {{{old}: {new}}}` with sync_all_columns keeps the values."
