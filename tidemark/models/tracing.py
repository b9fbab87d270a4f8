"""Finds the lineage of a query in its SQL alone.

A column comes from what its expression reads: through CTEs, subqueries, joins, unions and stars. What only decides which
rows there are (WHERE, ON, GROUP BY) is not part of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope
from sqlglot.schema import MappingSchema

from tidemark.models.lineage import STAR, Fields, Lineage, Source
from tidemark.models.sql import DIALECT, select_of, table_name, tables


def lineage_of(sql: str, schemas: Mapping[str, Fields]) -> Lineage:
    """The lineage of a query over tables of these columns. A table that is not among them may have any."""
    query = select_of(sql).copy()
    written = [each.name for each in query.find_all(exp.Identifier)]
    real = _renamed(query, schemas)
    known = [name for table in real.values() for name in table.of.of]
    spelling = {name.lower(): name for name in reversed([*written, *known])}
    _expand_structs(query, real)
    shapes: dict[str, object] = {
        short: {name: "string" for name in known.of.of} for short, known in real.items() if known.of.of
    }
    try:
        qualified = qualify(
            query, dialect=DIALECT, schema=MappingSchema(shapes, dialect=DIALECT), validate_qualify_columns=False,
            identify=False,
        )  # fmt: skip
        scope = build_scope(qualified)
    except SqlglotError as error:
        raise ValueError(str(error)) from None
    assert scope is not None, "a query has a scope"
    tracer = _Tracer(real, spelling)
    columns: dict[str, tuple[Source, ...]] = {}
    unknown: set[str] = set()
    for position, name in enumerate(_outputs(scope)):
        tracer.lost = False
        shown = spelling.get(name.lower(), name)
        columns[shown] = tuple(sorted(set(tracer.at(scope, position, ()))))
        if tracer.lost or name == STAR:
            unknown.add(shown)
    return Lineage(columns, frozenset(unknown))


@dataclass(frozen=True)
class _Table:
    """A table under the short name that it has while its query is looked at."""

    name: str
    of: Fields


def _renamed(query: exp.Query, schemas: Mapping[str, Fields]) -> dict[str, _Table]:
    """Gives every table a name of one part, as sqlglot knows no more than three, and keeps what columns call it."""
    folded = {name.lower(): _Table(name, known) for name, known in schemas.items()}
    real: dict[str, _Table] = {}
    plain: set[str] = set()
    for position, table in enumerate(list(tables(query))):
        name, short = table_name(table), f"_t{position}"
        real[short] = folded.get(name.lower(), _Table(name, Fields()))
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.parts[-1].name, quoted=True)))
            plain.add(name.lower())
        table.set("this", exp.to_identifier(short))
        table.set("db", None)
        table.set("catalog", None)
    for column in list(query.find_all(exp.Column)):
        # `silver.orders.id` is the table's column, `orders.record.id` a field of one.
        before = ".".join(part.name for part in column.parts[:-1]).lower()
        if column.args.get("db") and any(name == before or name.endswith(f".{before}") for name in plain):
            column.set("db", None)
            column.set("catalog", None)
    return real


def _expand_structs(query: exp.Query, real: Mapping[str, _Table]) -> None:
    """Puts the fields of a struct for `record.*`, where the table's fields are known."""
    for select in list(query.find_all(exp.Select)):
        sources = {
            each.alias.lower(): real[each.name].of
            for each in _from(select)
            if isinstance(each, exp.Table) and each.name in real
        }
        written: list[exp.Expr] = []
        for each in select.expressions:
            fields = _struct_of(each, sources) if isinstance(each, exp.Column) and each.is_star else None
            if not fields:
                written.append(each)
                continue
            owner = [part.copy() for part in each.parts[:-1]]
            written += [exp.Dot.build([exp.column(*reversed(owner)), exp.to_identifier(name)]) for name in fields]
        select.set("expressions", written)


def _struct_of(star: exp.Column, sources: Mapping[str, Fields]) -> list[str]:
    path = [part.name.lower() for part in star.parts[:-1]]
    if path[0] in sources:
        path, looked_at = path[1:], [sources[path[0]]]
    else:
        looked_at = list(sources.values())
    if len(path) != 1:
        return []
    found = [known.of[name] for known in looked_at if (name := known.find(path[0])) is not None]
    return list(found[0].of) if len(found) == 1 else []


def _from(select: exp.Select) -> Iterator[exp.Expr]:
    first = select.args.get("from_")
    if first is not None:
        yield first.this
    for join in select.args.get("joins") or ():
        yield join.this


class _Tracer:
    """Follows columns from scope to scope down to tables."""

    def __init__(self, real: Mapping[str, _Table], spelling: Mapping[str, str]) -> None:
        self._real, self._spelling = real, spelling
        self.lost = False

    def at(self, scope: Scope, position: int, path: tuple[str, ...]) -> Iterator[Source]:
        """Sources of the scope's column at the position, or of a field in it."""
        if scope.set_operation_scopes:
            for branch in scope.set_operation_scopes:
                yield from self.at(branch, position, path)
        elif scope.is_cte and not scope.sources and scope.expression.args.get("from_"):
            return  # a recursive CTE inside of itself: what it begins from is traced where it is read
        elif isinstance(scope.expression, exp.Query) and position < len(scope.expression.selects):
            yield from self._in(scope.expression.selects[position].unalias(), scope, path)
        else:
            self.lost = True

    def _in(self, expression: exp.Expr, scope: Scope, path: tuple[str, ...]) -> Iterator[Source]:
        """Sources of everything that the expression reads."""
        if isinstance(expression, exp.Star):
            self.lost = True
            yield from (Source(self._real[each.name].name, STAR) for each in self._read(scope))
        inner = {id(each.expression): each for each in scope.subquery_scopes}
        chain = _chain(expression)
        for node in expression.walk(prune=lambda each: isinstance(each, exp.Query)):
            if isinstance(node, exp.Query):
                below = inner.get(id(node)) or inner.get(id(node.this))
                if below is None:
                    self.lost = True
                else:
                    for position in range(len(_outputs(below))):
                        yield from self.at(below, position, ())
            elif isinstance(node, exp.Column):
                fields = _fields_after(node) + (path if chain is node else ())
                yield from self._column(node, scope, fields)

    def _column(self, column: exp.Column, scope: Scope, path: tuple[str, ...]) -> Iterator[Source]:
        source = scope.sources.get(column.table) if column.table else self._only_candidate(scope)
        if isinstance(source, exp.Table):
            table = self._real.get(source.name)
            if table is not None and not source.args.get("pivots"):
                yield Source(table.name, self._shown(column, table, path))
                return
            # A function that makes rows reads no table; of a pivot nobody knows which columns went in.
            self.lost = self.lost or table is not None
        elif source is None:
            self.lost = True
        elif isinstance(source.expression, exp.Query):
            names = [name.lower() for name in _outputs(source)]
            if column.name.lower() in names:
                yield from self.at(source, names.index(column.name.lower()), path)
            else:
                self.lost = True
        else:  # LATERAL VIEW explode(…), VALUES
            for read in source.expression.find_all(exp.Column):
                yield from self._column(read, source, _fields_after(read))

    def _read(self, scope: Scope) -> list[exp.Table]:
        """The tables that stand in the scope itself."""
        found = (source for _, source in scope.selected_sources.values())
        return [each for each in found if isinstance(each, exp.Table) and each.name in self._real]

    def _only_candidate(self, scope: Scope) -> exp.Table | None:
        """The one table whose columns nobody knows: a column that is in no other must be its own."""
        unknown = [each for each in self._read(scope) if not self._real[each.name].of.of]
        return unknown[0] if len(unknown) == 1 else None

    def _shown(self, column: exp.Column, table: _Table, path: tuple[str, ...]) -> str:
        if column.is_star:
            self.lost = True
            return STAR
        first = table.of.find(column.name) or self._spelling.get(column.name.lower(), column.name)
        known = table.of.of.get(first, Fields())
        shown = [first]
        for part in path:
            spelled = known.find(part)
            shown.append(spelled or self._spelling.get(part.lower(), part))
            known = known.of.get(spelled or "", Fields())
        return ".".join(shown)


def _outputs(scope: Scope) -> list[str]:
    first = scope
    while first.set_operation_scopes:
        first = first.set_operation_scopes[0]
    query = first.expression
    if not isinstance(query, exp.Query):
        return []
    given = scope.outer_columns
    return [given[place] if place < len(given) else each.alias_or_name for place, each in enumerate(query.selects)]


def _chain(expression: exp.Expr) -> exp.Expr | None:
    """The column at the beginning of `column.field.field`, if the expression is nothing else."""
    while isinstance(expression, exp.Dot | exp.Paren):
        expression = expression.this
    return expression if isinstance(expression, exp.Column) else None


def _fields_after(column: exp.Column) -> tuple[str, ...]:
    """The fields that are taken out of the column right where it stands."""
    fields: list[str] = []
    node: exp.Expr = column
    while (
        isinstance(node.parent, exp.Dot) and node.parent.this is node and isinstance(node.parent.expression, exp.Identifier)
    ):
        node = node.parent
        fields.append(node.expression.name)
    return tuple(fields)
