"""A model's query as text: one SELECT, the tables it reads, the variables in it.

The text that Spark gets is the author's own, with a few characters put in at known places. It is never generated
from a syntax tree: what one parser takes for the same may not be the same for Spark.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import zip_longest

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from tidemark.config.problems import did_you_mean
from tidemark.lake_names import CATALOG

DIALECT = "spark"

# What a variable may hold; a list stands for what IN takes.
Scalar = str | int | float | bool | None
Value = Scalar | Sequence[Scalar]

_BEFORE = {TokenType.L_PAREN}
_QUERIES = {TokenType.SELECT, TokenType.WITH, TokenType.FROM}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadSql(ValueError):
    """What is wrong with a query, and in which of its lines."""

    def __init__(self, line: int, words: str) -> None:
        super().__init__(words)
        self.line = line


@dataclass(frozen=True)
class Reference:
    """A table that a query reads, without the lake's own name, as one would write it in Spark."""

    name: str
    line: int


def select_of(sql: str) -> exp.Query:
    """The one SELECT of the text."""
    first = next((token for token in _tokens(sql) if token.token_type not in _BEFORE), None)
    if first is None or first.token_type is TokenType.SEMICOLON:
        raise BadSql(1, "there is no query. A model is one SELECT.")
    if first.token_type not in _QUERIES:
        words = f"this begins with {first.text.upper()}. A model is one SELECT; Tidemark does the writing."
        raise BadSql(first.line, words)
    try:
        statements = [each for each in sqlglot.parse(sql, dialect=DIALECT) if each is not None and _says_something(each)]
    except SqlglotError as error:
        line, words = _located(error)
        raise BadSql(line, f"this is not Spark SQL: {words}") from None
    if len(statements) > 1:
        raise BadSql(_line(statements[1]), f"these are {len(statements)} statements. A model is one SELECT.")
    query = statements[0]
    if not isinstance(query, exp.Query) or query.args.get("into"):
        raise BadSql(_line(query), "this does more than select. A model is one SELECT; Tidemark does the writing.")
    if any(each.name.upper() == "IDENTIFIER" for each in query.find_all(exp.Anonymous)):
        line = next(token.line for token in _tokens(sql) if token.text.upper() == "IDENTIFIER")
        raise BadSql(line, "IDENTIFIER hides what is read. Write the name itself.")
    return query


def check_columns(query: exp.Query) -> None:
    """Every column has a name, and one of its own: what Spark makes up is no name to build on."""
    first: dict[str, str] = {}
    if not query.selects:
        raise BadSql(_line(query), "this selects no column.")
    for column in query.selects:
        if column.is_star:
            continue
        named = _names(column)
        if not named:
            raise BadSql(_line(column, query), f"name this column: {_shortened(column)} AS ….")
        for name in named:
            if name.lower() in first:
                words = f"two columns are called '{name}', letter case aside. Rename one of them."
                raise BadSql(_line(column, query), words)
            first[name.lower()] = name


def columns_of(sql: str) -> list[str] | None:
    """The columns of a query by name; None if a star may bring any."""
    selected = select_of(sql).selects
    return None if any(each.is_star for each in selected) else [name for each in selected for name in _names(each)]


def _names(column: exp.Expr) -> list[str]:
    if isinstance(column, exp.Aliases):  # explode(map) AS (key, value)
        return [each.name for each in column.aliases]
    if isinstance(column, exp.Dot):
        return [column.expression.name]
    return [column.alias_or_name] if isinstance(column, exp.Alias | exp.Column | exp.Subquery) else []


def references(query: exp.Query) -> tuple[Reference, ...]:
    """Every table that the query reads, once, in the order of its text; names of its own CTEs are none."""
    found: dict[str, Reference] = {}
    for table in sorted(tables(query), key=_start):
        name = table_name(table)
        found.setdefault(name.lower(), Reference(name, _line(table)))
    return tuple(found.values())


def tables(query: exp.Query) -> Iterator[exp.Table]:
    """The tables themselves, in every place that has one: names of CTEs and in hints are none."""
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Func) and not table.find_ancestor(exp.Hint) and not _names_a_cte(table):
            yield table


def _names_a_cte(table: exp.Table) -> bool:
    """Whether the name is that of a CTE of a query around it. Inside of a CTE, only those written before it count."""
    node: exp.Expr = table
    while len(table.parts) == 1 and (around := node.parent) is not None:
        ctes = around if isinstance(around, exp.With) else around.args.get("with_")
        written = ctes.expressions if ctes is not None and ctes is not node else []
        if isinstance(around, exp.With) and not around.args.get("recursive"):
            written = written[: next(place for place, each in enumerate(written) if each is node)]
        if any(each.alias.lower() == table.name.lower() for each in written):
            return True
        node = around
    return False


def table_name(table: exp.Table) -> str:
    parts = [part.name for part in table.parts]
    return ".".join(parts[1:] if parts[0].lower() == CATALOG and len(parts) > 1 else parts)


def for_spark(sql: str) -> str:
    """The query with the lake's name before every table, and without what ends a statement."""
    places = sorted({_start(table) for table in tables(select_of(sql)) if table.parts[0].name.lower() != CATALOG})
    for place in reversed(places):
        sql = f"{sql[:place]}{CATALOG}.{sql[place:]}"
    last = _tokens(sql)[-1]
    while last.token_type is TokenType.SEMICOLON:
        sql = sql[: last.start] + sql[last.end + 1 :]
        last = _tokens(sql)[-1]
    return sql.strip()


def normalized(sql: str) -> str:
    """The query as it counts: comments, white space, letter case outside of texts and a last semicolon do not."""
    words = [_word(sql, token) for token in _tokens(sql)]
    while words and words[-1] == ";":
        words.pop()
    return " ".join(words)


# --- variables -------------------------------------------------------------------------------------------------------


def variables_in(sql: str) -> dict[str, int]:
    """The names of the variables in the query, each with the line it first stands in."""
    found: dict[str, int] = {}
    for name, token in _variables(sql):
        found.setdefault(name, token.line)
    return found


def with_variables(sql: str, values: Mapping[str, Value], later: Set[str] = frozenset()) -> str:
    """The query with every `@name` replaced by its value as SQL; texts and comments are left alone.

    The names in `later` stay as they are: they have a value only while a run goes on.
    """
    for name, token in reversed(list(_variables(sql))):
        if name in later:
            continue
        if name not in values:
            known = ", ".join(f"@{each}" for each in values) or "none; write them under `variables:`"
            raise BadSql(token.line, f"@{name} is no variable.{did_you_mean(name, values)} Variables: {known}.")
        sql = f"{sql[: token.start]}{literal(values[name])}{sql[token.end + 1 + len(name) :]}"
    return sql


def variables_of(sql: str) -> set[str]:
    """The names of all variables in the query."""
    return {name for name, _ in _variables(sql)}


def literal(value: Value) -> str:
    """A value as Spark reads it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, int | float):
        return repr(value)
    return f"({', '.join(map(literal, value))})"


def _variables(sql: str) -> Iterator[tuple[str, Token]]:
    """Each variable's name, and the token of the `@` before it."""
    tokens = _tokens(sql)
    for sign, word in zip_longest(tokens, tokens[1:]):
        if sign.token_type is not TokenType.PARAMETER:
            continue
        name = sql[word.start : word.end + 1] if word else ""
        if sign.text != "@" or word is None or word.start != sign.end + 1 or not _PLAIN_NAME.fullmatch(name):
            raise BadSql(sign.line, f"a variable is @ and a name, such as @country; this is {sign.text}{name}.")
        yield name, sign


# --- how sqlglot reports ---------------------------------------------------------------------------------------------


def _says_something(statement: exp.Expr) -> bool:
    return not isinstance(statement, exp.Semicolon)


def _tokens(sql: str) -> list[Token]:
    try:
        return sqlglot.tokenize(sql, dialect=DIALECT)
    except SqlglotError as error:
        line, words = _located(error)
        raise BadSql(line, f"this is not Spark SQL: {words}") from None


def _word(sql: str, token: Token) -> str:
    written = sql[token.start : token.end + 1]
    if token.token_type is TokenType.IDENTIFIER:
        return token.text.lower() if _PLAIN_NAME.fullmatch(token.text) else written.lower()
    # Numbers with a suffix are three tokens of one place: 1L is not 1 L.
    return written if "'" in written or '"' in written else token.text.lower()


def _start(table: exp.Table) -> int:
    return int(table.parts[0].meta["start"])


def _line(expression: exp.Expr, around: exp.Expr | None = None) -> int:
    """The first line that some part of the expression, or of what is around it, is known to stand in."""
    lines = [int(node.meta["line"]) for node in expression.walk() if "line" in node.meta]
    return min(lines) if lines else _line(around) if around is not None else 1


def _shortened(expression: exp.Expr) -> str:
    text = expression.sql(dialect=DIALECT)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _located(error: SqlglotError) -> tuple[int, str]:
    errors = getattr(error, "errors", None)
    if errors:
        first = errors[0]
        near = f" near '{first['highlight']}'" if first.get("highlight") else ""
        # Where a text ends too early, sqlglot shows its own idea of an end.
        words = re.sub(r" but got <Token .*>", "", first["description"]).rstrip(".")
        return int(first.get("line") or 1), f"{words}{near}."
    return 1, f"{str(error).splitlines()[0].rstrip('.')}."
