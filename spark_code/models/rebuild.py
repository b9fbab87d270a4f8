"""A model rebuilt: in a shadow of the table that readers see, published in its place by one commit."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_code.models.adapter import numbered
from spark_code.models.align import aligned, own
from spark_code.models.incoming import Incoming, bound, only_row, order_of
from spark_code.models.strategies import gathered
from spark_code.models.target import Target, Written, renamed, same_keys
from spark_code.models.work import Fields, Outcome, Work, because
from tidemark.errors import ConfigError, LostRace
from tidemark.faults import fault_point
from tidemark.models.chunks import Chunk, Range, chunks_of, ranges_of
from tidemark.models.hashes import config_hash, sql_hash
from tidemark.models.place import spark_name
from tidemark.models.policy import Decision
from tidemark.models.results import Action
from tidemark.models.spec import MergeOptions, Parameter
from tidemark.models.subject import REFRESH
from tidemark.models.values import Value, in_type
from tidemark.publication import drop_shadow, shadow_location, take_over_shadow
from tidemark.runs import Mode, Reason

CHUNK = "tidemark.chunk"


class Rebuild:
    """Whatever happens on the way, readers see the old table until they see the new one."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.run = work.run
        self.adapter = work.adapter

    # --- the first time ----------------------------------------------------------------------------------------------

    def first(self, reason: Reason) -> Outcome:
        """Makes the table, and publishes all that the query has as its first snapshot."""
        work, run = self.work, self.run
        words = f"only the window {work.window.told()}" if work.window is not None else ""
        run.decide(Mode.FULL, reason, words, base_snapshot=run.base)
        incoming = work.incoming() if work.window is None else work.windowed(work.window)
        with gathered(incoming, whole=True) as batch:
            run.confirm()
            if self.adapter.table_exists(run.name):
                raise LostRace(f"{run.name}: another run has published its table meanwhile. Run again.")
            table = self.adapter.first_table(run.place.table, work.fields)
            target = Target(self.adapter.spark, run.place.spark_name, table.schema().fields, run.stage)
            did = work.write(target, batch, whole=True)
        checks = work.check(self.adapter.spark.table(run.stage()))
        greatest = did.greatest if work.window is None else work.furthest(did.greatest)
        snapshot = run.publish_staged(work.state_after(greatest, table.schema().fields))
        return Outcome("published", "full", because(reason, words), did, snapshot, checks=checks)

    # --- again -------------------------------------------------------------------------------------------------------

    def by_policy(self, decision: Decision) -> Outcome:
        """What a rebuilding policy does is the whole run: the strategy does not run after it."""
        words = f"the policy is {decision.rebuild}"
        # These two do not read all that there is: that the sources stay as they are does not make the next run idle.
        partly = Rebuild(replace(self.work, made_from=None))
        if decision.rebuild == "recreate_empty":
            return partly.emptied(words, decision)
        if decision.rebuild == "full_incremental_refresh":
            return partly.in_chunks(words, decision)
        return self.whole(Reason.SCHEMA_CHANGED, words, decision)

    def whole(
        self, reason: Reason, words: str = "", decision: Decision | None = None, action: Action = "rebuild"
    ) -> Outcome:
        """All that the query has takes the place of all that the table had."""
        work = self.work
        self.run.decide(Mode(action), reason, words, base_snapshot=self.run.base)
        with gathered(work.incoming(), whole=True) as batch:
            shadowed = self._shadow({})
            did = work.write(self._target(shadowed), batch, whole=True)
        return self._published(shadowed, did, because(reason, words), decision, action)

    def emptied(self, words: str, decision: Decision) -> Outcome:
        """An empty table of the new columns; the next run begins at the beginning."""
        reason = because(Reason.SCHEMA_CHANGED, words)
        self.run.decide(Mode.REBUILD, Reason.SCHEMA_CHANGED, words, base_snapshot=self.run.base)
        fields = self._fields()
        checks = self.work.check(aligned(self.work.rows.limit(0), fields, {}))
        snapshot = self.run.publish_nothing(self.work.state_after(None, fields), Schema(*fields))
        return Outcome("published", "rebuild", reason, Written(), snapshot, decision, checks)

    def _published(
        self, shadowed: Table, did: Written, reason: str, decision: Decision | None, action: Action, **more: int
    ) -> Outcome:
        fields = shadowed.schema().fields
        checks = self.work.check(self.adapter.frame(self.run.shadow))
        snapshot = self.run.publish_shadow(self.work.state_after(did.greatest, fields), Schema(*fields))
        return Outcome("published", action, reason, did, snapshot, decision or Decision(), checks, more=more)

    # --- the shadow table --------------------------------------------------------------------------------------------

    def _fields(self) -> Fields:
        return tuple(numbered(self.work.fields, self.adapter.existing(self.run.name)))

    def _shadow(self, meaning: dict[str, Any], fields: Fields | None = None) -> Table:
        return empty_shadow(self.work, fields or self._fields(), meaning)

    def _target(self, shadowed: Table) -> Target:
        name = spark_name(self.run.shadow)
        return Target(self.adapter.spark, name, shadowed.schema().fields, lambda: name)

    # --- in chunks ---------------------------------------------------------------------------------------------------

    def in_chunks(self, words: str, decision: Decision) -> Outcome:
        """Chunk by chunk, each recorded with its rows; a refresh that was stopped goes on behind the last one."""
        refresh = self.work.metadata.full_incremental_refresh
        assert refresh is not None, "the metadata are refused without"
        found = self._resumable()
        if found is None:
            facts = self._facts(refresh.parameters)
            ranges = [self._ranges(each, facts) for each in refresh.parameters]
            outside = int(facts["outside"])
            fields = self._fields()
            found = self._shadow(self._meaning(fields) | {"ranges": _kept(ranges), "outside": outside}, fields)
        else:
            words = f"{words}; resumed"
        reason = because(Reason.SCHEMA_CHANGED, words)
        self.run.decide(Mode.REBUILD, Reason.SCHEMA_CHANGED, words, base_snapshot=self.run.base)
        kept = json.loads(found.properties[REFRESH])
        chunks = chunks_of([[Range.from_json(each) for each in ranges] for ranges in kept["ranges"]])
        for chunk in missing(found, chunks):
            self.run.advance("chunk", chunk.number, len(chunks), note=chunk.told())
            self._write_chunk(found, chunk)
            fault_point("models.after_chunk")
        found = self.adapter.reader.catalog.load_table(self.run.shadow)
        did = self._written(found)
        outside = kept["outside"]
        note = f"{self.run.name}: {outside:,} rows lie outside of the ranges or are NULL there, and are not in the table"
        outcome = self._published(found, did, reason, decision, "rebuild", chunks=len(chunks), outside=outside)
        return replace(outcome, notes=(note,) if outside else ())

    def _meaning(self, fields: Fields) -> dict[str, Any]:
        """What must be the same for a stopped refresh to go on."""
        refresh, incremental = self.work.metadata.full_incremental_refresh, self.work.metadata.incremental
        assert refresh is not None, "the metadata are refused without"
        assert incremental is not None, "the metadata are refused without"
        columns = [[each.name, str(each.field_type)] for each in self.work.fields]
        return {
            "sql": sql_hash(self.work.sql),
            "options": config_hash(incremental),
            "columns": columns,
            "numbers": [each.field_id for each in fields],
            "parameters": refresh.model_dump(mode="json"),
            "base": self.run.base,
        }

    def _resumable(self) -> Table | None:
        """The refresh that a stopped run left, taken over; None if there is none, or it was begun for something else."""
        reader, table = self.adapter.reader, self.run.place.table
        for name in self.run.left:
            found = reader.existing(name)
            kept, meaning = json.loads(found.properties.get(REFRESH, "{}")), self._meaning(self._fields())
            if {key: kept.get(key) for key in meaning} == meaning:
                self.run.confirm()
                return take_over_shadow(reader, table, name, self.run.run_id)
        return None

    def _facts(self, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
        """One look at the query: where the ranges end, and how many rows lie in none of them."""
        work = self.work
        columns = {each.name: own(work.incoming().field(each.column).name) for each in parameters}
        ends = [
            f.max(columns[each.name]).cast("string").alias(each.name) for each in parameters if each.ends_at_the_greatest
        ]
        inside = f.lit(True)
        for each in parameters:
            of = work.incoming().field(each.column).field_type
            inside = inside & (columns[each.name] >= bound(self._value(each, "start_value"), of))
            if not each.ends_at_the_greatest:
                inside = inside & (columns[each.name] <= bound(self._value(each, "end_value"), of))
        outside = f.count_if(f.coalesce(~inside, f.lit(True))).alias("outside")
        return only_row(work.name, work.rows.agg(outside, *ends)).asDict()

    def _value(self, parameter: Parameter, which: str) -> Value:
        of = self.work.incoming().field(parameter.column).field_type
        try:
            return in_type(getattr(parameter, which), of)
        except ValueError as wrong:
            where = f"full_incremental_refresh, parameter @{parameter.name}: {which}"
            raise ConfigError(f"{self.run.name}: {where} {wrong} of {parameter.column}.") from None

    def _ranges(self, parameter: Parameter, facts: dict[str, Any]) -> list[Range]:
        start = self._value(parameter, "start_value")
        if not parameter.ends_at_the_greatest:
            return ranges_of(parameter, start, self._value(parameter, "end_value"))  # type: ignore[arg-type]
        if facts[parameter.name] is None:
            return []  # nothing to go through
        end = in_type(facts[parameter.name], self.work.incoming().field(parameter.column).field_type)
        return [] if end < start else ranges_of(parameter, start, end)  # type: ignore[arg-type, operator]

    def _write_chunk(self, shadowed: Table, chunk: Chunk) -> None:
        """One chunk. Its number stands in the snapshot that has its rows, so it is done if and only if they are there."""
        work = self.work
        self.run.confirm()
        variables = {**work.metadata.variables, **{each.name: each.start for each in chunk.ranges}}
        rows = within(self.adapter.query(work.sql, self.run.name, variables), work, chunk)
        # A key may come again in a later chunk: it is merged then. Otherwise rows are only added.
        keyed = isinstance(work.options, MergeOptions)
        if keyed and order_of(work.options):
            rows = self._with_rivals(rows, self._target(shadowed))
        incoming = Incoming(self.run.name, rows, work.fields, work.options)
        with gathered(incoming, whole=not keyed) as batch, self.adapter.lake.summary({CHUNK: str(chunk.number)}):
            did = work.write(self._target(shadowed), batch, whole=not keyed)
            if keyed and not did.changed:
                self._note_empty(incoming)

    def _with_rivals(self, rows: DataFrame, target: Target) -> DataFrame:
        """A chunk together with the rows of its keys from other chunks: `dedupe_by` chooses among all of them."""
        keys = [target.stored(name).name for name in self.work.options.key_columns]
        wanted = aligned(rows, target.fields, {}).select(*renamed(keys)).distinct()
        return rows.unionByName(target.rows.join(wanted, same_keys(keys), "left_semi"))

    def _note_empty(self, incoming: Incoming) -> None:
        """A chunk without rows is done as well."""
        target = self._target(self.adapter.reader.catalog.load_table(self.run.shadow))
        aligned(incoming.rows.limit(0), target.fields, {}).writeTo(target.stage()).append()

    def _written(self, shadowed: Table) -> Written:
        """What the chunks have put there together, those of earlier runs included."""
        work, target = self.work, self._target(shadowed)
        field = work.incoming_filter
        refresh = work.metadata.full_incremental_refresh
        column = field.name if field else refresh.parameters[0].column if refresh else ""
        rows = target.rows
        row = rows.agg(f.count(f.lit(1)).alias("rows"), f.max(own(column)).cast("string").alias("greatest")).collect()[0]
        greatest = work.incoming().field(column)
        value = None if row["greatest"] is None else in_type(row["greatest"], greatest.field_type)
        return Written(inserted=int(row["rows"]), greatest=value)


def empty_shadow(work: Work, fields: Fields, meaning: dict[str, Any]) -> Table:
    """An empty shadow of the model's table, without anything of an earlier one."""
    run, adapter = work.run, work.adapter
    run.confirm()
    for left in run.left:
        drop_shadow(adapter.reader, run.place.table, left)
    made = adapter.make(run.shadow, fields, shadow_location(adapter.existing(run.name)))
    if meaning:
        with made.transaction() as transaction:
            transaction.set_properties({REFRESH: json.dumps(meaning)})
        made = adapter.reader.catalog.load_table(run.shadow)
    return made


def missing(shadowed: Table, chunks: list[Chunk]) -> Iterator[Chunk]:
    """The chunks that no snapshot of the table has."""
    done = {
        snapshot.summary.additional_properties.get(CHUNK)
        for snapshot in shadowed.snapshots()
        if snapshot.summary is not None and snapshot.summary.operation.value != "delete"
    }
    return (chunk for chunk in chunks if str(chunk.number) not in done)


def within(rows: DataFrame, work: Work, chunk: Chunk) -> DataFrame:
    for each in chunk.ranges:
        field = work.incoming().field(each.column)
        column, start, end = own(field.name), bound(each.start, field.field_type), bound(each.end, field.field_type)
        rows = rows.where((column >= start) & (column <= end if each.closed else column < end))
    return rows


def _kept(ranges: list[list[Range]]) -> list[list[dict[str, Any]]]:
    return [[each.to_json() for each in listed] for listed in ranges]
