"""A connector put to the test: the four rules, a full, an incremental and a retry cycle, on its real source.

No record is written to the source. Every cycle has a tenant of its own on a platform that is thrown away afterwards.
"""

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa

from spark_code.connectors.bad_days import behind_proxy, error_of, faults_of
from spark_code.connectors.run import IngestRun
from spark_code.connectors.subject import StreamSubject
from spark_code.platform import Platform
from tidemark.checks import failed
from tidemark.connectors.bronze import cursor_text
from tidemark.connectors.contract import CheckpointConnector, Connector, OutputState, Slice, Window, fixed_window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.durations import Duration
from tidemark.connectors.manifest import Manifest
from tidemark.connectors.registry import connector_for
from tidemark.connectors.stream import StreamSpec
from tidemark.errors import SliceFailed, SourceError, TidemarkError

A_DAY = Duration.parse("P1D")
SMALL_PAGE = 7
TENANTS = ("full", "incremental", "retry", "troubled")
# Runs within which faults that pass must be over.
ATTEMPTS = 8


class Unmet(Exception):
    """A rule is not kept; the message says in what."""


class NotApplicable(Exception):
    """A rule has nothing to hold on to with this stream; the message says why."""


@dataclass(frozen=True)
class Verdict:
    """What became of one rule. `passed` is None where it does not apply."""

    stream: str
    rule: str
    passed: bool | None
    told: str


def expect(kept: bool, otherwise: str) -> None:
    if not kept:
        raise Unmet(otherwise)


class StreamKit:
    """All rules for one stream, one after the other; a later one builds on what the first ones read."""

    def __init__(self, platform: Platform, manifest: Manifest, described: StreamSpec) -> None:
        self.platform, self.manifest, self.described = platform, manifest, described
        # So that what a connector makes at the source is nobody else's.
        self._tag = uuid4().hex[:8]
        self.subject = self._of("full")
        self.full: OutputState | None = None

    def verdicts(self) -> Iterator[Verdict]:
        rules: list[tuple[str, Callable[[], str]]] = [
            ("describes itself", self.describes_itself),
            ("full cycle", self.full_cycle),
            ("respects the input state and reads nothing older", self.respects_the_state),
            ("returns the greatest cursor of all pages", self.returns_the_greatest_cursor),
            ("pages of any size hold the same records", self.pages_agree),
            ("lands nothing twice", self.lands_nothing_twice),
            ("applies the safety window", self.applies_the_safety_window),
            ("incremental cycle", self.incremental_cycle),
            ("retry cycle", self.retry_cycle),
            ("faults that last are told by name", self.lasting_faults_are_named),
            ("faults that pass are put right", self.passing_faults_are_put_right),
        ]
        try:
            for rule, check in rules:
                yield self._judged(rule, check)
        finally:
            self._leave_nothing()

    def _leave_nothing(self) -> None:
        """What a connector had to make at the source to read it, such as a slot, goes with the kit."""
        for tenant in TENANTS:
            subject = self._of(tenant)
            if isinstance(subject.connector, CheckpointConnector):
                with suppress(SourceError):
                    subject.connector.forget(subject.stream)

    def _judged(self, rule: str, check: Callable[[], str]) -> Verdict:
        try:
            return Verdict(self.described.id, rule, True, check())
        except NotApplicable as why:
            return Verdict(self.described.id, rule, None, str(why))
        except Unmet as why:
            return Verdict(self.described.id, rule, False, str(why))
        except TidemarkError as error:
            return Verdict(self.described.id, rule, False, f"{type(error).__name__}: {error}")

    # --- rules -------------------------------------------------------------------------------------------------------

    def describes_itself(self) -> str:
        stream, connector = self.subject.stream, self.subject.connector
        pickle.dumps(connector)
        schema = connector.discover(stream)
        lacking = [name for name in (*stream.key, *stream.cursor_fields) if name not in schema.names]
        expect(not lacking, f"its fields lack {', '.join(lacking)}, which the manifest names in key or cursor")
        return f"{len(schema)} fields"

    def full_cycle(self) -> str:
        self.full = self._ran(self.subject, full=True)
        last = self._last(self.subject)
        landed = len(self._hashes())
        expect(landed == last["landed"], f"{last['landed']} records landed, and Bronze has {landed}")
        counted = self._counted()
        if counted is not None:
            seen = last["read"] + last["quarantined"]
            expect(seen == counted, f"the source counts {counted} records, and {seen} were read")
        return f"{last['read']} records in {last['slices']} slices" + ("" if counted is None else ", as the source counts")

    def respects_the_state(self) -> str:
        stream, connector = self.subject.stream, self.subject.connector
        if isinstance(connector, CheckpointConnector):
            left = connector.pending(stream, self._state(self.subject), parallel=1)
            expect(not left, "what was read and committed waits to be read again")
            return "nothing waits behind the committed checkpoint"
        window, cursors = self._second_half()
        read = [stream.parse_cursor(text) for text in self._cursors_read(window)]
        older = sum(cursor not in window for cursor in read)
        expect(not older, f"{older} of {len(read)} records lie outside the window")
        expect(len(read) >= len(cursors), f"{len(cursors)} records lie in the window, and {len(read)} were read")
        return f"{len(read)} records from the middle on, none older"

    def returns_the_greatest_cursor(self) -> str:
        stream = self.subject.stream
        if isinstance(self.subject.connector, CheckpointConnector):
            expect(self._state(self.subject) is not None, "a run that succeeded left no checkpoint")
            return "the checkpoint is committed"
        cursors = self._landed_cursors()
        expect(self.full is not None and self.full.cursor_value is not None, "a run that succeeded gave no state")
        assert self.full is not None
        expect(
            stream.parse_cursor(self.full.cursor_value) == max(cursors), "the state is not the greatest cursor that landed"
        )
        return f"the greatest of {len(cursors)} cursors"

    def pages_agree(self) -> str:
        connector, stream = self.subject.connector, self.subject.stream
        if isinstance(connector, CheckpointConnector) and connector.has_log:
            raise NotApplicable("a log is read from where it was left")
        window = self._window(None)
        large = sorted(map(repr, self._rows_read(window, connector.page_size(stream))))
        small = sorted(map(repr, self._rows_read(window, SMALL_PAGE)))
        expect(large == small, f"{len(large)} records in large pages, and {len(small)} in pages of {SMALL_PAGE}, or others")
        return f"{len(large)} records, in pages of {connector.page_size(stream)} and of {SMALL_PAGE}"

    def lands_nothing_twice(self) -> str:
        before = self._latest(self.subject)
        self._ran(self.subject, full=True)
        last, connector = self._last(self.subject), self.subject.connector
        expect(self._latest(self.subject) == before, "`latest` is another after reading everything again")
        if not (isinstance(connector, CheckpointConnector) and connector.has_log):
            expect(not last["landed"], f"{last['landed']} records landed again")
        return f"{last['read']} records read again, {last['landed']} landed"

    def applies_the_safety_window(self) -> str:
        stream = self.subject.stream
        if isinstance(self.subject.connector, CheckpointConnector) or stream.cursor is None:
            raise NotApplicable("the stream has no cursor of its own")
        if self._first_type() != "timestamp":
            raise NotApplicable("the cursor is no timestamp")
        wide = self._of("full", safety_window=A_DAY)
        committed = stream.parse_cursor(self._state(self.subject))
        window = fixed_window(wide.stream, committed, self.subject.connector.now(stream))
        expect(window.lower == committed.minus(A_DAY), "the window does not begin a safety window earlier")
        self._ran(wide)
        last = self._last(wide)
        expect(last["read"] > 0, "the records inside the safety window were not read again")
        expect(not last["landed"], f"{last['landed']} records of the safety window landed again")
        return f"{last['read']} records read again, none landed"

    def incremental_cycle(self) -> str:
        stream = self.subject.stream
        if isinstance(self.subject.connector, CheckpointConnector):
            self._ran(self.subject)
            last = self._last(self.subject)
            expect(not last["landed"], f"{last['landed']} records landed again")
            return "an incremental run after a full one lands nothing"
        window, cursors = self._second_half()
        middle = self._of("incremental")
        middle.marks.move(
            middle.address, None, str(window.lower), field=stream.cursor_field,
            run_id=str(uuid4()), actor="kit", reason="the middle of the stream",
        )  # fmt: skip
        self._ran(middle)
        last = self._last(middle)
        expect(last["landed"] >= len(set(cursors)) and last["landed"] <= last["read"], "records after the state are missing")
        expect(stream.parse_cursor(self._state(middle)) >= max(cursors), "the state did not move to the greatest cursor")
        return f"{last['landed']} records landed from the middle on"

    def retry_cycle(self) -> str:
        retry = self._of("retry")
        retry.__dict__["connector"] = interrupted(retry.connector)
        try:
            self._ran(retry)
            raise Unmet("a source that fails for ever did not stop the run")
        except SliceFailed:
            pass
        expect(self._state(retry) is None, "the state moved though the run failed")
        published = self.platform.lake.reader.published(retry.place.table)
        expect(published is None, "a run that failed published something")
        again = self._of("retry")
        self._ran(again)
        expect(len(self._latest(again)) == len(self._latest(self.subject)), "the retry landed other records than a full run")
        last = self._last(again)
        return f"{last['landed']} records landed by the retry, each once"

    def lasting_faults_are_named(self) -> str:
        named, settings, credentials = [], self.manifest.resolved_settings(), self.subject.connector.credentials
        for fault in self._faults():
            with behind_proxy(settings, fault) as behind:
                error = error_of(connector_for(self.manifest.kind, behind, credentials), self.subject.stream)
            expect(error is not None, f"{fault}: it was not noticed")
            leaked = [value for value in credentials.values() if value and value in str(error)]
            expect(not leaked, f"{fault}: the error holds a value of the credentials")
            named.append(f"{fault}: {type(error).__name__}")
        return "; ".join(named)

    def passing_faults_are_put_right(self) -> str:
        if self.platform.config.spark.remote is not None:
            raise NotApplicable("Spark's tasks run elsewhere, where the proxy cannot be reached")
        self._faults()
        with behind_proxy(self.manifest.resolved_settings(), None) as behind:
            for attempt in range(1, ATTEMPTS + 1):
                subject = self._of("troubled")
                subject.__dict__["connector"] = self._behind(behind, subject)
                try:
                    self._ran(subject)
                    break
                except TidemarkError:
                    expect(attempt < ATTEMPTS, f"{ATTEMPTS} runs were not enough")
        expect(self._latest(subject) == self._latest(self.subject), "other records landed than without faults")
        return f"all records landed, each once, by run {attempt}"

    def _behind(self, settings: dict[str, Any], subject: StreamSubject) -> Connector:
        made = connector_for(self.manifest.kind, settings, subject.connector.credentials)
        made.owner = subject.connector.owner
        return made

    def _faults(self) -> list[str]:
        found = faults_of(self.manifest.resolved_settings())
        if not found:
            raise NotApplicable("the source has no address that a proxy could stand in front of")
        return found

    # --- looking -----------------------------------------------------------------------------------------------------

    def _of(self, tenant: str, **words: Any) -> StreamSubject:
        return StreamSubject(
            self.platform, f"kit-{self._tag}-{tenant}", self.manifest, self.described.model_copy(update=words)
        )

    def _ran(self, subject: StreamSubject, *, full: bool = False) -> OutputState | None:
        run = IngestRun(subject, str(uuid4()))
        run.begin()
        try:
            with run.step("land"):
                run.land(run.plan(full=full))
            wrong = failed(run.verify())
            expect(not wrong, "; ".join(f"{each.name}: {each.summary}" for each in wrong))
            return run.publish()
        finally:
            run.end()

    def _last(self, subject: StreamSubject) -> dict[str, Any]:
        detail = self.platform.control.runs.history(subject.address, limit=1)[0].detail
        return {**detail, **detail["rows"]}

    def _state(self, subject: StreamSubject) -> Any:
        found = subject.marks.get(subject.address)
        return found.value if found else None

    def _first_type(self) -> str:
        types = self.subject.stream.cursor_types
        return types if isinstance(types, str) else types[0]

    def _window(self, lower: Cursor | None) -> Window:
        stream, connector = self.subject.stream, self.subject.connector
        if isinstance(connector, CheckpointConnector):
            return Window()
        whole = fixed_window(stream, None, connector.now(stream))
        return Window(lower or whole.lower, whole.upper, whole.closed)

    def _counted(self) -> int | None:
        return self.subject.connector.count(self.subject.stream, self._window(None))

    def _slices(self, window: Window) -> list[Slice]:
        return self.subject.connector.slices(self.subject.stream, window, parallel=2)

    def _pages(self, window: Window, page_size: int) -> Iterator[pa.RecordBatch]:
        for slice in self._slices(window):
            for page in self.subject.connector.read(self.subject.stream, slice, page_size):
                expect(page.num_rows <= page_size, f"a page has {page.num_rows} records, and {page_size} were requested")
                yield page

    def _rows_read(self, window: Window, page_size: int) -> Iterator[dict[str, Any]]:
        for page in self._pages(window, page_size):
            yield from page.to_pylist()

    def _cursors_read(self, window: Window) -> Iterator[str]:
        for page in self._pages(window, self.subject.connector.page_size(self.subject.stream)):
            yield from (text for text in cursor_text(page, self.subject.stream).to_pylist() if text is not None)

    def _landed_cursors(self) -> list[Cursor]:
        reader, table = self.platform.lake.reader, self.subject.place.table
        published = reader.published(table)
        if self.subject.stream.cursor is None:
            raise NotApplicable("the stream has no cursor")
        if published is None:
            raise NotApplicable("the stream is empty")
        with reader.connect() as db:
            rows = db.execute(
                f"SELECT cursor FROM {reader.files(table, published.snapshot_id).sql} WHERE cursor IS NOT NULL"
            ).fetchall()
        return [self.subject.stream.parse_cursor(text) for (text,) in rows]

    def _second_half(self) -> tuple[Window, list[Cursor]]:
        """The window from the middle of what landed, and the cursors that landed in it."""
        cursors = sorted(self._landed_cursors())
        middle = cursors[len(cursors) // 2]
        window = self._window(middle)
        return window, [cursor for cursor in cursors if cursor in window]

    def _hashes(self) -> list[bytes]:
        """Every row that the full cycle's stream has in Bronze, by its content."""
        rows = self.platform.spark.sql(f"SELECT DISTINCT content_hash FROM lake.{self.subject.place.changes}").toArrow()
        return list(rows["content_hash"].to_pylist())

    def _latest(self, subject: StreamSubject) -> set[str]:
        """The last version of every record, but for what the connector adds of its own, such as a place in a log."""
        rows = self.platform.spark.sql(f"SELECT record FROM lake.{subject.place.latest}").toArrow()
        own = isinstance(subject.connector, CheckpointConnector)
        return {
            repr({name: value for name, value in record.items() if not (own and name.startswith("_"))})
            for record in rows["record"].to_pylist()
        }


def interrupted(connector: Connector) -> Connector:
    """The same connector, on a source that breaks off in the middle of the last slice's first page."""
    original = type(connector)

    class Interrupted(original):  # type: ignore[misc, valid-type]
        def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
            for page in original.read(self, stream, slice, page_size):
                if page.num_rows > 1:
                    yield page.slice(0, page.num_rows // 2)
                raise SourceError(f"{stream.id}: the kit broke the connection off.")

    broken = copy.copy(connector)
    broken.__class__ = Interrupted
    return broken
