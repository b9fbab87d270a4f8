"""What a model says of itself besides its query: how it is kept, by which strategy, and what a new schema may do to it."""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from tidemark.config.document import Document
from tidemark.config.explanation import problems_of
from tidemark.config.problems import Place, as_error
from tidemark.config.values import Switch, Text, TextList
from tidemark.connectors.stream import ManifestSection
from tidemark.models.checks import ModelCheck
from tidemark.models.steps import Step
from tidemark.models.windows import BEGINNINGS, Span, beginning, key_at, moment_of, window_at

Materialization = Literal["table", "view", "incremental"]
Strategy = Literal["append", "merge", "delete_insert"]
Policy = Literal[
    "fail",
    "ignore",
    "append_new_columns",
    "sync_all_columns",
    "full_refresh",
    "full_incremental_refresh",
    "recreate_empty",
]
REBUILDING: tuple[Policy, ...] = ("full_refresh", "full_incremental_refresh", "recreate_empty")


def _listed(value: Any) -> Any:
    """One column is as good as a list of one."""
    return (value,) if isinstance(value, str) else value


def _value(value: Any) -> Any:
    """A bound as it is kept: moments as ISO text, numbers as numbers."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a moment, a number or text.")
    return value


Columns = Annotated[TextList, Field(min_length=1), BeforeValidator(_listed)]
Bound = Annotated[str | int | float, BeforeValidator(_value)]


class Section(ManifestSection):
    """A part of a model's metadata."""

    model_config = ConfigDict(alias_generator=None, arbitrary_types_allowed=True)


class Filtered(Section):
    """What all strategies know of time: which rows are new."""

    filter_column: Text | None = None
    """The column whose values say which rows are new: those beyond the last value that was written."""
    start_value: Bound | None = None
    """Where the first run begins. Without it, with everything."""
    lookback: Step | None = None
    """How far before the last value a run begins, for rows that come late: "3 days", or a number."""

    @model_validator(mode="before")
    @classmethod
    def _time_column_is_the_filter(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "time_column" in given and "filter_column" not in given:
            return {("filter_column" if key == "time_column" else key): value for key, value in given.items()}
        return given

    @model_validator(mode="after")
    def _bounds_are_of_a_column(self) -> Self:
        if self.filter_column is None and (self.start_value is not None or self.lookback is not None):
            raise ValueError("start_value and lookback are of a filter_column. Name it.")
        return self

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; none if nothing says which."""
        return getattr(self, "unique_key", None) or ()

    @property
    def by_condition(self) -> bool:
        """Whether a condition names the rows of a run, and not the filter column."""
        return bool(getattr(self, "where_condition", None))


class AppendOptions(Filtered):
    """Rows are added and never changed."""

    unique_key: Columns | None = None
    """Columns by which a row that is in the table already is known, and not added again."""
    deduplicate: Switch | None = None
    """Whether rows of the lookback that are in the table already are left out. Yes, if there is a lookback or a key."""

    @property
    def deduplicates(self) -> bool:
        return self.deduplicate if self.deduplicate is not None else bool(self.lookback or self.unique_key)


class MergeOptions(Filtered):
    """Rows are added, or replace those of their key."""

    unique_key: Columns
    """The columns that identify a row. NULL equals NULL."""
    dedupe_by: Columns | None = None
    """Which of several rows of one key wins: the greatest of these columns, or the least with " asc" behind it."""
    no_update_columns: TextList = ()
    """Columns that keep the value they were first written with."""

    @model_validator(mode="after")
    def _keys_are_not_kept_apart(self) -> Self:
        both = sorted(set(map(str.lower, self.unique_key)) & set(map(str.lower, self.no_update_columns)))
        if both:
            raise ValueError(f"{', '.join(both)}: part of the unique_key never changes; leave it out of no_update_columns.")
        return self


class DeleteInsertOptions(Filtered):
    """Rows are deleted by key, by condition or by range, and new ones take their place in the same snapshot."""

    unique_key: Columns | None = None
    """The columns whose values name the rows to be deleted: those that the new rows have."""
    where_condition: Text | None = None
    """The rows to be deleted, and the rows of the query that take their place. @start is where this run begins."""

    @model_validator(mode="after")
    def _something_says_what_to_delete(self) -> Self:
        if self.unique_key and self.where_condition:
            raise ValueError("unique_key and where_condition exclude each other. Keep one.")
        if not (self.unique_key or self.where_condition or self.filter_column):
            raise ValueError("needs unique_key, where_condition or filter_column: what is to be deleted?")
        if "@start" in (self.where_condition or "") and not self.filter_column:
            raise ValueError("@start in where_condition is of a filter_column. Name it.")
        return self


class Incremental(Section):
    """How an incremental model is brought up to date."""

    strategy: Strategy
    """How new rows get into the table."""
    append: AppendOptions | None = None
    """The options of the strategy append."""
    merge: MergeOptions | None = None
    """The options of the strategy merge."""
    delete_insert: DeleteInsertOptions | None = None
    """The options of the strategy delete_insert."""
    on_schema_change: Policy = "fail"
    """What is done when the query has other columns than the table."""

    @property
    def options(self) -> Filtered:
        """The options of the chosen strategy."""
        chosen: Filtered | None = getattr(self, self.strategy)
        return chosen or AppendOptions()

    @model_validator(mode="after")
    def _options_are_of_the_strategy(self) -> Self:
        if self.strategy != "append" and getattr(self, self.strategy) is None:
            raise ValueError(f"the strategy {self.strategy} needs its options, below `{self.strategy}:`.")
        others = [each for each in ("append", "merge", "delete_insert") if each != self.strategy and getattr(self, each)]
        if others:
            raise ValueError(f"the strategy is {self.strategy}, and there are options of {', '.join(others)}. Keep one.")
        return self


class Parameter(Section):
    """A range of one column, to be gone through step by step."""

    name: Text
    """The variable that holds the beginning of a step in the query, with or without @."""
    column: Text
    """The column of the query that the steps are of."""
    start_value: Bound
    """Where the first step begins."""
    end_value: Bound
    """Where the last step ends, itself included: a value, or max(column)."""
    step: Step
    """How long a step is: a number, or minutes to years as "1 month"."""

    @field_validator("name")
    @classmethod
    def _name_without_sign(cls, name: str) -> str:
        return name.removeprefix("@")

    @property
    def ends_at_the_greatest(self) -> bool:
        """Whether the end is to be asked from the query: `max(column)`."""
        text = str(self.end_value).replace(" ", "").lower()
        return text == f"max({self.column.lower()})" or text == "max(column)"


class FullIncrementalRefresh(Section):
    """How a rebuild is split into chunks."""

    parameters: Annotated[tuple[Parameter, ...], Field(min_length=1, strict=False)]
    """The ranges to go through; of several, every combination is a chunk."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [each.name.lower() for each in self.parameters]
        if len(set(names)) < len(names):
            raise ValueError("two parameters have the same name.")
        return self


class Partitions(Section):
    """Windows of the filter column, each of which can be rebuilt."""

    by: Span
    """How long a window is."""
    start: Annotated[datetime, BeforeValidator(moment_of)]
    """Where the first one begins, in UTC."""

    @model_validator(mode="after")
    def _start_is_where_a_window_begins(self) -> Self:
        if beginning(self.by, self.start) != self.start:
            raise ValueError(f"start must be {BEGINNINGS[self.by]} in UTC, since partitions are by {self.by}.")
        return self

    def key_at(self, moment: datetime) -> str | None:
        """The key of the window that a moment is in; None before the first."""
        return key_at(self.by, moment) if moment >= self.start else None

    def range_of(self, text: str) -> tuple[str, str]:
        """The first and the last key of `2026-03-01` or `2026-03-01..2026-03-05`; a ValueError says what is wrong."""
        first, _, last = (part.strip() for part in text.partition(".."))
        windows = [window_at(self.by, each) for each in (first, last or first)]
        if windows[0].start < self.start:
            raise ValueError(f"the first partition is {key_at(self.by, self.start)}.")
        if windows[1].start < windows[0].start:
            raise ValueError(f"{first} is behind {last}. The earlier one comes first.")
        return first, last or first


class ModelMetadata(Section):
    """All that is said of a model besides its query."""

    materialization: Materialization = "table"
    """How the model is kept: rebuilt by every run, as a view, or brought up to date."""
    incremental: Incremental | None = None
    """How an incremental model is brought up to date."""
    full_incremental_refresh: FullIncrementalRefresh | None = None
    """How a rebuild is split into chunks."""
    partitions: Partitions | None = None
    """Windows of the filter column that can be rebuilt one by one."""
    renames: dict[str, str] = Field(default_factory=dict)
    """Columns that have another name now, the old one first: values are kept."""
    checks: Annotated[tuple[ModelCheck, ...], Field(strict=False)] = ()
    """What the rows must satisfy before they are published."""
    description: str = ""
    """What the model is."""
    owner: str | None = None
    """Who answers for it."""
    tags: TextList = ()
    """Words to find it by."""
    variables: dict[str, Any] = Field(default_factory=dict)
    """Values for @name in the query."""

    @classmethod
    def parse(
        cls, given: Mapping[str, Any], file: str = "model", lines: Mapping[Place, int] | None = None
    ) -> "ModelMetadata":
        """The metadata; everything that is wrong with it in one ConfigError, each with its line, if lines are known."""
        document = Document(file, given, dict(lines or {}) or _places(given))
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise as_error(file, problems_of(error, document, cls)) from None

    @model_validator(mode="after")
    def _incremental_has_a_strategy(self) -> Self:
        if self.materialization == "incremental" and self.incremental is None:
            raise ValueError("an incremental model needs a strategy, below `incremental:`.")
        chunked = self.incremental is not None and self.incremental.on_schema_change == "full_incremental_refresh"
        if chunked and self.full_incremental_refresh is None:
            raise ValueError("the policy full_incremental_refresh needs parameters, below `full_incremental_refresh:`.")
        return self

    @model_validator(mode="after")
    def _partitions_are_of_a_filter_column(self) -> Self:
        wrong = _unfit_for_partitions(self.incremental, self.materialization) if self.partitions else None
        if wrong:
            raise ValueError(f"partitions: {wrong}")
        return self

    @field_validator("renames")
    @classmethod
    def _renames_lead_somewhere(cls, renames: dict[str, str]) -> dict[str, str]:
        new = [name.lower() for name in renames.values()]
        if len(set(new)) < len(new):
            raise ValueError("two columns cannot get the same name.")
        if any(old.lower() == name.lower() for old, name in renames.items()):
            raise ValueError("a column cannot be renamed to itself.")
        return renames


def _unfit_for_partitions(incremental: Incremental | None, kept_as: Materialization) -> str | None:
    """Why windows of the model cannot be rebuilt, if they cannot."""
    options = incremental.options if incremental else None
    if options is None or kept_as != "incremental":
        return "only an incremental model has windows that can be rebuilt."
    if options.filter_column is None:
        return "windows are of a filter_column. Name it."
    if options.by_condition:
        return "where_condition names the rows of a run already. Leave it out: filter_column names them too."
    if isinstance(options, AppendOptions) and not (options.unique_key and options.deduplicates):
        return "append never changes rows, and would add those of a window again. Give a unique_key, or use delete_insert."
    return None


def _places(given: Any, place: Place = ()) -> dict[Place, int]:
    """Every place in plain values, all in line 1: for metadata that comes from no file."""
    found: dict[Place, int] = {place: 1}
    entries = given.items() if isinstance(given, Mapping) else enumerate(given) if isinstance(given, list | tuple) else ()
    for key, value in entries:
        found |= _places(value, (*place, key))
    return found
