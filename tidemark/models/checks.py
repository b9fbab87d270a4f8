"""Checks of a model: what its rows must satisfy before they are published.

Each check is one query that gives one row, and a verdict on that row. Whoever can run SQL on the staged rows can run them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from tidemark.checks import CheckResult
from tidemark.config.values import Percent, Switch, Text, TextList
from tidemark.connectors.stream import ManifestSection
from tidemark.lake_names import CATALOG
from tidemark.models.sql import literal

Kind = Literal["unique", "not_null", "accepted_values", "relationships", "row_count_change"]
KINDS: tuple[Kind, ...] = ("unique", "not_null", "accepted_values", "relationships", "row_count_change")


def _listed(value: Any) -> Any:
    """One column is as good as a list of one."""
    return (value,) if isinstance(value, str) else value


Columns = Annotated[TextList, Field(min_length=1), BeforeValidator(_listed)]
Plain = Annotated[str | int | float | bool, Field(union_mode="left_to_right")]


class AcceptedValues(ManifestSection):
    """The values that a column may have."""

    column: Text
    """The column. NULL is accepted; not_null says otherwise."""
    values: Annotated[tuple[Plain, ...], Field(min_length=1, strict=False)]
    """What it may hold."""


class Relationships(ManifestSection):
    """The rows of another table that a column must lead to."""

    column: Text
    """The column. NULL leads nowhere and is accepted."""
    to: Text
    """The other table, by its name in the lake."""
    field: Text
    """Its column."""


class RowCountChange(ManifestSection):
    """How far the number of rows may move in one run."""

    max_increase_percent: Annotated[int, Field(ge=0)] | None = None
    """By how much it may grow."""
    max_decrease_percent: Percent | None = None
    """By how much it may shrink."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.max_increase_percent is None and self.max_decrease_percent is None:
            raise ValueError("needs max_increase_percent, max_decrease_percent, or both.")
        return self


class ModelCheck(ManifestSection):
    """One check: exactly one of the five kinds, and how serious it is."""

    unique: Columns | None = None
    """Columns whose values, taken together, no two rows share."""
    not_null: Columns | None = None
    """Columns that always have a value."""
    accepted_values: AcceptedValues | None = None
    """A column and the values it may have."""
    relationships: Relationships | None = None
    """A column and where its values must be found."""
    row_count_change: RowCountChange | None = None
    """How far the number of rows may move in one run."""
    name: Text = ""
    """What the check is called. Without it, its kind and its columns."""
    blocking: Switch = True
    """Whether a failure keeps the run from publishing; otherwise it is only reported."""
    where: Text | None = None
    """A condition: only rows that satisfy it are looked at."""

    @property
    def kind(self) -> Kind:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the model that are looked at."""
        if self.accepted_values is not None:
            return (self.accepted_values.column,)
        if self.relationships is not None:
            return (self.relationships.column,)
        return self.unique or self.not_null or ()

    @model_validator(mode="after")
    def _exactly_one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            many = f"has {' and '.join(given)}" if given else "has no kind"
            raise ValueError(f"{many}; a check is one of {', '.join(KINDS)}.")
        if not self.name:
            # Frozen for everybody else.
            object.__setattr__(self, "name", "__".join((self.kind, *map(_as_name, self.columns))))
        return self

    @field_validator("name")
    @classmethod
    def _name_fits(cls, name: str) -> str:
        if _as_name(name) != name:
            raise ValueError("must be letters, digits and '_'.")
        return name

    # --- how it is run -------------------------------------------------------------------------------------------

    def query(self, staged: str, published: str | None) -> str:
        """SQL that gives one row for `verdict`. Both are names or subqueries that may stand after FROM.

        `published` is None before the first publication.
        """
        rows = f"(SELECT * FROM {staged} WHERE {self.where})" if self.where else staged
        if self.row_count_change is not None:
            of_before = f"(SELECT * FROM {published} WHERE {self.where})" if self.where else published
            before = f"(SELECT count(*) FROM {of_before})" if published else "CAST(NULL AS BIGINT)"
            return f"SELECT {before} AS before, (SELECT count(*) FROM {rows}) AS after"
        return (
            f"SELECT count(*) AS failed, coalesce(sum(_rows), 0) AS rows, {_EXAMPLES} AS examples FROM ({self._bad(rows)})"
        )

    def verdict(self, row: Mapping[str, Any]) -> CheckResult:
        """What the row of the query says."""
        if self.row_count_change is not None:
            return self._verdict_on_change(row["before"], row["after"])
        facts = {"failed": int(row["failed"]), "rows": int(row["rows"]), "examples": list(row["examples"])}
        words = _WRONG[self.kind].format(**facts) if facts["failed"] else _FINE[self.kind]
        return CheckResult(self.name, not facts["failed"], f"{', '.join(self.columns)}: {words}", facts)

    def _bad(self, rows: str) -> str:
        """One row for each bad value: how many rows have it, and the value as text."""
        columns = ", ".join(map(quoted, self.columns))
        if self.not_null:
            nulls = " OR ".join(f"{quoted(each)} IS NULL" for each in self.not_null)
            which = ", ".join(f"CASE WHEN {quoted(each)} IS NULL THEN {literal(each)} END" for each in self.not_null)
            return f"SELECT concat_ws(', ', {which}) AS _value, count(*) AS _rows FROM {rows} WHERE {nulls} GROUP BY 1"
        value = f"to_json(struct({columns}))"
        if self.unique:
            return f"SELECT {value} AS _value, count(*) AS _rows FROM {rows} GROUP BY {columns} HAVING count(*) > 1"
        if self.accepted_values is not None:
            accepted = literal(self.accepted_values.values)
            return (
                f"SELECT {value} AS _value, count(*) AS _rows FROM {rows} "
                f"WHERE {columns} IS NOT NULL AND {columns} NOT IN {accepted} GROUP BY {columns}"
            )
        assert self.relationships is not None
        other, field = quoted_table(self.relationships.to), quoted(self.relationships.field)
        return (
            f"SELECT {value} AS _value, count(*) AS _rows FROM {rows} AS _ours "
            f"LEFT ANTI JOIN {other} AS _theirs ON _ours.{columns} = _theirs.{field} "
            f"WHERE {columns} IS NOT NULL GROUP BY {columns}"
        )

    def _verdict_on_change(self, before: int | None, after: int) -> CheckResult:
        assert self.row_count_change is not None
        most, least = self.row_count_change.max_increase_percent, self.row_count_change.max_decrease_percent
        facts = {"before": before, "after": after}
        if not before:
            return CheckResult(self.name, True, f"{after:,} rows; there were none to compare with", facts)
        change = 100 * (after - before) / before
        grew, shrank = most is not None and change > most, least is not None and -change > least
        allowed = f"+{most} %" if grew else f"−{least} %"
        summary = f"{before:,} → {after:,} rows ({change:+.1f} %)" + (f"; allowed is {allowed}" if grew or shrank else "")
        return CheckResult(self.name, not (grew or shrank), summary, facts | {"percent": round(change, 1)})


# The first and the last: a million bad values must not go to one task for two of them.
_EXAMPLES = "array_distinct(array_compact(array(min(_value), max(_value))))"
_FINE = {
    "unique": "every value is unique",
    "not_null": "no NULLs",
    "accepted_values": "accepted values only",
    "relationships": "every value leads somewhere",
}
_WRONG = {
    "unique": "{failed:,} values stand in more than one row, {rows:,} rows in all",
    "not_null": "NULL in {rows:,} rows",
    "accepted_values": "{failed:,} values that are not accepted, in {rows:,} rows",
    "relationships": "{failed:,} values lead nowhere, in {rows:,} rows",
}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def quoted_table(name: str) -> str:
    """A table of the lake, with the lake's own name before it."""
    parts = name.split(".")
    return ".".join(quoted(part) for part in (parts if parts[0].lower() == CATALOG else [CATALOG, *parts]))


def _as_name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in text)
