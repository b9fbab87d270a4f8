"""SOQL for the stub: a parser of what it knows, which translates to SQLite and refuses what Salesforce refuses."""

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

TOKEN = re.compile(
    r"\s*(?:(?P<datetime>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,3})?(?:Z|[+-]\d\d:\d\d))|(?P<date>\d{4}-\d\d-\d\d)"
    r"|(?P<number>-?\d+(?:\.\d+)?)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|(?P<sign><=|>=|!=|[=<>(),]))"
)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
NUMBERS = {"int", "long", "double", "currency", "percent"}
EARLIEST, LATEST = datetime(1700, 1, 1, tzinfo=UTC), datetime(4000, 12, 31, tzinfo=UTC)


class SoqlRefused(Exception):
    """What Salesforce would answer with status 400."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


@dataclass
class StubField:
    """A field, with what a describe tells of it."""

    name: str
    type: str = "string"
    nillable: bool = True
    filterable: bool = True
    sortable: bool = True
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def column(self) -> str:
        # Text is compared without regard to case there; ids are not.
        plain = {"boolean": "INTEGER", "int": "INTEGER", "long": "INTEGER", "double": "REAL"}
        plain |= {"currency": "REAL", "percent": "REAL"}
        kind = plain.get(
            self.type, "TEXT" if self.type in ("id", "reference", "datetime", "date") else "TEXT COLLATE NOCASE"
        )
        return f'"{self.name}" {kind}'


@dataclass(frozen=True)
class Translated:
    source: str
    names: list[str]  # none: COUNT()
    sql: str  # what comes behind FROM, without the limit
    values: list[Any]
    order: str
    limit: int | None


def as_stored(moment: str) -> str:
    """A datetime in the one form that compares as text."""
    return datetime.fromisoformat(moment).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Parser:
    def __init__(self, soql: str, objects: dict[str, dict[str, StubField]]) -> None:
        self._tokens = list(tokens(soql))
        self._objects = objects
        self._fields: dict[str, StubField] = {}
        self._values: list[Any] = []

    def query(self) -> Translated:
        names = self._selected()
        self._word("FROM")
        source = self._name()
        if source not in self._objects:
            raise SoqlRefused("INVALID_TYPE", f"sObject type '{source}' is not supported.")
        self._fields = self._objects[source]
        for name in names:
            self._field(name)
        where = f" WHERE {self._condition()}" if self._took("WHERE") else ""
        order = self._order() if self._took("ORDER") else ""
        limit = int(self._next("number")) if self._took("LIMIT") else None
        if self._tokens:
            raise malformed(f"unexpected token: {self._tokens[0][1]}")
        return Translated(source, names, f'"{source}"{where}', self._values, order, limit)

    def _selected(self) -> list[str]:
        self._word("SELECT")
        if self._took("COUNT"):
            self._sign("(")
            self._sign(")")
            return []
        names = [self._name()]
        while self._took(","):
            names.append(self._name())
        if len(set(names)) < len(names):
            raise SoqlRefused("INVALID_FIELD", "duplicate field selected")
        return names

    def _order(self) -> str:
        self._word("BY")
        parts = []
        while True:
            found = self._field(self._name())
            if not found.sortable:
                raise malformed(f"field '{found.name}' can not be sorted in a query call")
            direction = "DESC" if self._took("DESC") else "ASC"
            self._took("ASC")
            parts.append(f'"{found.name}" {direction} NULLS FIRST')
            if not self._took(","):
                return f" ORDER BY {', '.join(parts)}"

    def _condition(self) -> str:
        parts, joint = [self._term()], None
        while (word := self._peek()) in ("AND", "OR"):
            if joint not in (None, word):
                raise malformed("AND and OR need parentheses between them")
            joint = word
            self._tokens.pop(0)
            parts.append(self._term())
        return f"({f' {joint} '.join(parts)})"

    def _term(self) -> str:
        if self._took("("):
            inner = self._condition()
            self._sign(")")
            return inner
        found = self._field(self._name())
        if not found.filterable:
            raise SoqlRefused("INVALID_FIELD", f"field '{found.name}' can not be filtered in a query call")
        kind, sign = self._tokens.pop(0) if self._tokens else ("", "")
        if kind != "sign" or sign in "(),":
            raise malformed("an operator is missing")
        return self._compared(found, sign, *(self._tokens.pop(0) if self._tokens else ("", "")))

    def _compared(self, found: StubField, sign: str, kind: str, text: str) -> str:
        if kind == "name" and text.lower() == "null":
            if sign not in ("=", "!="):
                raise malformed("null can only be equal or not")
            return f'"{found.name}" IS {"NOT " if sign == "!=" else ""}NULL'
        self._values.append(self._value(found, kind, text))
        return f'"{found.name}" {"IS NOT" if sign == "!=" else sign} ?'

    def _value(self, found: StubField, kind: str, text: str) -> Any:
        if found.type == "datetime" and kind == "datetime":
            if not EARLIEST <= datetime.fromisoformat(text) <= LATEST:
                raise SoqlRefused("INVALID_FIELD", "datetime out of range")
            return as_stored(text)
        if found.type == "date" and kind == "date":
            return date.fromisoformat(text).isoformat()
        if found.type in NUMBERS and kind == "number":
            return float(text) if "." in text else int(text)
        if found.type == "boolean" and kind == "name" and text.lower() in ("true", "false"):
            return int(text.lower() == "true")
        if found.type not in {"datetime", "date", "boolean", *NUMBERS} and kind == "text":
            return re.sub(r"\\(.)", lambda escape: ESCAPES.get(escape[1], escape[1]), text[1:-1])
        quotes = " and should not be enclosed in quotes" if kind == "text" else ""
        words = f"value of filter criterion for field '{found.name}' must be of type {found.type}{quotes}"
        raise SoqlRefused("INVALID_FIELD", words)

    # --- tokens ------------------------------------------------------------------------------------------------------

    def _field(self, name: str) -> StubField:
        if name not in self._fields:
            raise SoqlRefused("INVALID_FIELD", f"No such column '{name}' on entity")
        return self._fields[name]

    def _peek(self) -> str:
        return self._tokens[0][1].upper() if self._tokens else ""

    def _took(self, word: str) -> bool:
        if self._peek() != word:
            return False
        self._tokens.pop(0)
        return True

    def _word(self, word: str) -> None:
        if not self._took(word):
            raise malformed(f"expecting {word}")

    _sign = _word

    def _name(self) -> str:
        return self._next("name")

    def _next(self, kind: str) -> str:
        if not self._tokens or self._tokens[0][0] != kind:
            raise malformed(f"expecting a {kind}")
        return self._tokens.pop(0)[1]


def tokens(soql: str) -> Any:
    place, end = 0, len(soql.rstrip())
    while place < end:
        found = TOKEN.match(soql, place)
        if found is None or found.lastgroup is None:
            raise malformed(f"unexpected character at {place}")
        yield found.lastgroup, found[found.lastgroup]
        place = found.end()


def malformed(words: str) -> SoqlRefused:
    return SoqlRefused("MALFORMED_QUERY", words)
