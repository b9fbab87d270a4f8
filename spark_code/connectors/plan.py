"""What a run is going to read, fixed before it does, and kept sealed until it is published: it holds values of state."""

from __future__ import annotations

import io
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, GreaterThanOrEqual
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import IntegerType, LongType

from tidemark.connectors.bronze import greatest_cursor
from tidemark.connectors.contract import CheckpointConnector, Slice, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.landing import SliceDone
from tidemark.connectors.stream import StreamSpec
from tidemark.control import Mark
from tidemark.errors import SchemaRefused, StateError
from tidemark.faults import fault_point
from tidemark.lake import plain_path
from tidemark.runs.reasons import Mode
from tidemark.store import ObjectStore

if TYPE_CHECKING:
    from spark_code.connectors.subject import StreamSubject

# When what a snapshot added counts as emitted, in microseconds.
EMITTED_AT = "tidemark.emitted-at"

# Errors after which the source or the manifest is changed: what was read before is read again.
SETTLED = ("CursorInvalid", "SchemaRefused", "ChecksFailed", "ConfigError", "TooManyDeleted")
# So many runs in a row may take a plan over and finish no slice of it. Then it may be the plan that fails them.
FRUITLESS = 2
# Files whose ends are read at once.
LOOKED_AT_ONCE = 16
# Bytes of a file that is read with one request.
FETCHED_WHOLE = 32 * 1024 * 1024
# Numbers that the engine can hold, and rows that it hands out at once.
HUGE = 10**38
ROWS_AT_ONCE = 50_000


@dataclass(frozen=True)
class Near:
    """A query for cursors, the files that it has to look at, and its values."""

    query: str
    files: BooleanExpression
    values: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class IngestPlan:
    """The window, its slices, and what they were made from."""

    run_id: str
    state_version: int | None
    full: bool
    # What was committed when it was made, and when what it lands counts as emitted: after all that was landed before.
    committed: str | None = field(repr=False)
    emitted_at: int
    lower: str | None = field(repr=False)
    upper: str | None = field(repr=False)
    closed: bool
    slices: tuple[Slice, ...] = field(repr=False)
    page_size: int
    # The manifest's words on the stream: with others, the slices of an earlier run would mean something else.
    spec: str = field(repr=False)
    schema_bytes: str = field(repr=False)
    # Where finished slices are noted.
    done: str
    # Fields that records turned out to have besides those that were described.
    grown_bytes: str = field(default="", repr=False)
    # Slices that were finished when it was taken over, and how many runs before had taken it over for nothing.
    found: int | None = None
    fruitless: int = 0

    @classmethod
    def made(
        cls,
        subject: StreamSubject,
        run_id: str,
        state: Mark | None,
        window: Window,
        slices: list[Slice],
        discovered: pa.Schema,
        *,
        full: bool,
    ) -> IngestPlan:
        stream = subject.stream
        return cls(
            run_id=run_id,
            state_version=state.version if state else None,
            full=full,
            committed=state.value if state else None,
            emitted_at=next_moment(subject),
            lower=None if window.lower is None else str(window.lower),
            upper=None if window.upper is None else str(window.upper),
            closed=window.closed,
            slices=tuple(slices),
            page_size=subject.connector.page_size(stream),
            spec=meaning(subject),
            schema_bytes=b64encode(discovered.serialize()).decode(),
            done=f"{subject.place.run(run_id)}/slices",
        )

    def taken_over(self, run_id: str) -> IngestPlan:
        return replace(self, run_id=run_id)

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(b64decode(self.schema_bytes)))

    @property
    def described(self) -> pa.Schema:
        """The fields that records may have: described before reading, or found in a record since."""
        if not self.grown_bytes:
            return self.schema
        return pa.schema([*self.schema, *pa.ipc.read_schema(pa.py_buffer(b64decode(self.grown_bytes)))])

    def widened(self, grown: Iterable[str]) -> IngestPlan:
        """With fields that slices found."""
        found = [pa.ipc.read_schema(pa.py_buffer(b64decode(each))) for each in (self.grown_bytes, *grown) if each]
        try:
            together = pa.unify_schemas(found, promote_options="permissive")
        except pa.ArrowException:
            raise SchemaRefused(
                f"run {self.run_id}: a field that the source does not describe has values whose types do not go together. "
                "Nothing was published. Fix its type with `schema_strategy: fixed`."
            ) from None
        return replace(self, grown_bytes=b64encode(together.serialize()).decode())

    def window(self, stream: StreamSpec) -> Window:
        return Slice(0, self.lower, self.upper, self.closed).window(stream)

    def finished(self, store: ObjectStore) -> dict[int, SliceDone]:
        """Slices that were read to their end, by this run or by the one it took over from, as they were noted."""
        noted = [SliceDone.read_from(store.read(info.key)) for info in store.list(self.done + "/")]
        return {each.number: each for each in noted if each is not None}

    def whole(self, subject: StreamSubject) -> dict[int, SliceDone]:
        """Of the finished slices those whose files are all there. A note may outlive its file: the others are read again."""
        finished, io_ = self.finished(subject.platform.store), PyArrowFileIO(subject.platform.lake_settings.for_python())
        with ThreadPoolExecutor(LOOKED_AT_ONCE) as pool:
            there = pool.map(lambda done: is_whole(io_, done), finished.values())
            return {number: done for (number, done), good in zip(finished.items(), there, strict=True) if good}

    def greatest_landed(self, subject: StreamSubject, snapshot: int | None, files: list[str]) -> Cursor | None:
        """The greatest cursor in the files that were landed, compared as what it means."""
        if snapshot is None:
            return None
        stream = subject.stream
        fields = stream.cursor_fields
        io_ = PyArrowFileIO(subject.platform.lake_settings.for_python())
        greatest: Cursor | None = None
        for path in files:
            found_file = io_.new_input(path)
            with found_file.open() as file:
                # A small file on S3 is fetched at once; of a large one only the columns, however wide the others are.
                whole = subject.platform.lake_settings.on_s3 and len(found_file) <= FETCHED_WHOLE
                content = pq.ParquetFile(io.BytesIO(file.read()) if whole else file)
                for batch in content.iter_batches(columns=[f"record.{name}" for name in fields]):
                    record = batch["record"]
                    found = greatest_cursor(
                        pa.record_batch(record.flatten(), names=[each.name for each in record.type]), stream
                    )
                    greatest = max((each for each in (greatest, found) if each is not None), default=None)
        return greatest

    def greatest_before(self, subject: StreamSubject) -> Cursor | None:
        """The greatest cursor that the published table has inside the window, however large the table is."""
        reader, table, stream = subject.platform.lake.reader, subject.place.table, subject.stream
        published = reader.published(table)
        if published is None:
            return None
        window, near = self.window(stream), self._near(subject)
        files = reader.files(table, published.snapshot_id, near.files)
        greatest: Cursor | None = None
        with reader.connect() as db:
            query = near.query.format(rows=files.evolving_sql)
            for batch in db.sql(query, params=list(near.values)).to_arrow_reader(ROWS_AT_ONCE):
                found = (stream.parse_cursor(text) for text in batch["cursor"].unique().drop_null().to_pylist())
                greatest = max((each for each in (greatest, *found) if each is not None and each in window), default=None)
        return greatest

    def _near(self, subject: StreamSubject) -> Near:
        """How to ask for the greatest cursor in the window. Where the engine cannot compare them, it hands out all."""
        stream, window = subject.stream, self.window(subject.stream)
        ends = [(sign, end) for sign, end in ((">=", window.lower), ("<=" if window.closed else "<", window.upper)) if end]
        if stream.cursor_types == "integer" and all(abs(end.order) < HUGE for _, end in ends):
            number = "TRY_CAST(cursor AS HUGEINT)"
            inside = " AND ".join(["true", *(f"{number} {sign} {end.order}" for sign, end in ends)])
            # Numbers that are too long for the engine are compared here.
            longer = f"SELECT cursor FROM {{rows}} WHERE cursor IS NOT NULL AND {number} IS NULL"
            query = f"SELECT max_by(cursor, {number}) AS cursor FROM {{rows}} WHERE {inside} UNION ALL {longer}"
            return Near(query, self._files_from(subject, window.lower))
        if stream.cursor_types == "text":
            inside = " AND ".join(["true", *(f"cursor {sign} ?" for sign, _ in ends)])
            files = GreaterThanOrEqual(term="cursor", value=window.lower.text) if window.lower else AlwaysTrue()
            return Near(
                f"SELECT max(cursor) AS cursor FROM {{rows}} WHERE {inside}", files, tuple(end.text for _, end in ends)
            )
        if stream.cursor_types == "timestamp" and window.lower and self._sorts_by_day(stream, window.lower):
            day = window.lower.text[:10]
            return Near("SELECT cursor FROM {rows} WHERE cursor >= ?", GreaterThanOrEqual(term="cursor", value=day), (day,))
        return Near("SELECT cursor FROM {rows} WHERE cursor IS NOT NULL", AlwaysTrue())

    def _files_from(self, subject: StreamSubject, least: Cursor | None) -> BooleanExpression:
        (name,), table = subject.stream.cursor_fields, subject.bronze.table
        if least is None or table is None:
            return AlwaysTrue()
        whole = isinstance(table.schema().find_type(f"record.{name}"), IntegerType | LongType)
        return GreaterThanOrEqual(term=f"record.{name}", value=least.order) if whole else AlwaysTrue()

    def _sorts_by_day(self, stream: StreamSpec, lower: Cursor) -> bool:
        """A clock without a zone stands in Bronze as its own zone shows it."""
        kind = self.schema.field(stream.cursor_fields[0]).type
        return pa.types.is_timestamp(kind) and kind.tz is not None and lower.text.endswith(("Z", "+00:00"))

    def refuse_another_schema(self, now: pa.Schema) -> None:
        if now != self.schema:
            raise SchemaRefused(
                f"run {self.run_id}: the fields of the source changed while it was read; one that came meanwhile would be "
                "lost for the records that were read without it. Nothing was published; run again."
            )


def meaning(subject: StreamSubject) -> str:
    """What the slices of a plan depend on besides the state: the stream's words, the kind, and where the source is."""
    manifest = subject.manifest
    return json.dumps([subject.stream.model_dump_json(), manifest.kind, manifest.resolved_settings()], sort_keys=True)


def next_moment(subject: StreamSubject) -> int:
    """Now, in microseconds; or just after the last landing, if the platform's clock was set back since.

    `latest` goes by it, and a plan keeps it: slices that a later run reads for this plan are not newer than the others.
    """
    now = int(subject.platform.clock.now().timestamp() * 1_000_000)
    published = subject.platform.lake.reader.published(subject.place.table)
    summary = published.summary.additional_properties if published and published.summary else {}
    return max(now, int(summary.get(EMITTED_AT, 0)) + 1)


def save_plan(subject: StreamSubject, plan: IngestPlan) -> None:
    content = asdict(plan) | {"slices": [each.to_json() for each in plan.slices]}
    sealed = subject.marks.seal(subject.address, json.dumps(content))
    subject.platform.store.put(f"{subject.place.run(plan.run_id)}/plan.sealed", sealed.encode())


def load_plan(subject: StreamSubject, run_id: str) -> IngestPlan | None:
    found = subject.platform.store.find(f"{subject.place.run(run_id)}/plan.sealed")
    if found is None:
        return None
    try:
        text = subject.marks.open(subject.address, bytes(found.body).decode())
        content = json.loads(text)
        return IngestPlan(**content | {"slices": tuple(Slice.from_json(each) for each in content["slices"])})
    except (StateError, TypeError):
        return None  # sealed with a key that is gone, or made by another version: it is read again


def resumable_plan(subject: StreamSubject, state_version: int | None) -> IngestPlan | None:
    """The plan of the last run if that was stopped and its slices still mean the same."""
    history = subject.control.runs.history(subject.address, limit=10)
    for record in history:
        if record.status == "running" or record.mode == Mode.UPKEEP:
            continue
        if record.status not in ("failed", "abandoned") or (record.error or "").startswith(SETTLED):
            return None
        plan = load_plan(subject, record.run_id)
        if plan is None or plan.state_version != state_version or plan.spec != meaning(subject):
            return None
        if isinstance(subject.connector, CheckpointConnector) and not subject.connector.resumable(plan.slices):
            return None
        # Killed between publishing and moving the state: its files are in the table, and adding them again would land twice.
        landed = set[str]().union(*map(files_of, plan.finished(subject.platform.store).values()))
        found = len(plan.whole(subject))
        if not found or not landed.isdisjoint(published_files(subject)):
            return None
        gained = plan.found is None or found > plan.found
        taken = replace(plan, found=found, fruitless=0 if gained else plan.fruitless + 1)
        return taken if taken.fruitless < FRUITLESS else None
    return None


def is_whole(io_: PyArrowFileIO, done: SliceDone) -> bool:
    """Whether the files of a slice have the rows that were noted, by their ends alone: a torn file has none."""
    try:
        return (rows_in(io_, done.files), rows_in(io_, done.quarantine)) == (done.landed, done.quarantined)
    except (OSError, pa.ArrowException):
        return False


def rows_in(io_: PyArrowFileIO, paths: Iterable[str]) -> int:
    rows = 0
    for path in paths:
        with io_.new_input(path).open() as file:
            rows += pq.read_metadata(file).num_rows
    return rows


def delete_left(subject: StreamSubject, run_id: str, *, own: bool = True) -> None:
    """Deletes what a finished run, and those before it, left: their folders, and files of slices that were never published.

    Without `own`, only what those before it left: for a run that resumes none of them and makes a new plan.

    Whoever is stopped in here and woken finds another run at work. Folders are listed before the ledger is asked, and a run
    is in the ledger before it has one: that of a later run is not listed, or known as later. No later run takes over from
    one before this, which finished: what is deleted here is nobody's, whenever that happens.
    """
    store, runs = subject.platform.store, f"{subject.place.root}/runs/"
    listed: dict[str, list[str]] = {}
    for info in store.list(runs):
        listed.setdefault(info.key.removeprefix(runs).split("/")[0], []).append(info.key)
    fault_point("ingest.before_tidy" if own else "ingest.before_clear")
    if not listed:
        return
    later = later_runs(subject, run_id)
    ended = {each: keys for each, keys in listed.items() if each not in later and (own or each != run_id)}
    notes = [key for keys in ended.values() for key in keys if "/slices/" in key]
    delete_unpublished(subject, run_id, notes, point="ingest.before_deletes" if own else "ingest.before_clear_deletes")
    for each in ended:
        store.delete_prefix(f"{subject.place.run(each)}/")


def later_runs(subject: StreamSubject, run_id: str) -> set[str]:
    """Runs that began after this one. It is among the newest, unless it was asleep."""
    limit = 10
    while True:
        history = [record.run_id for record in subject.control.runs.history(subject.address, limit=limit)]
        if run_id in history or len(history) < limit:
            return set(takewhile(lambda each: each != run_id, history))
        limit *= 10


def delete_unpublished(subject: StreamSubject, run_id: str, notes: Iterable[str], *, point: str) -> None:
    """Deletes the files of slices that no run took over: their plan was given up when state or manifest changed."""
    store, mine = subject.platform.store, load_plan(subject, run_id)
    others = [key for key in notes if mine is None or not key.startswith(f"{mine.done}/")]
    noted = [SliceDone.read_from(bytes(found.body)) for key in others if (found := store.find(key)) is not None]
    files = {path for done in noted if done is not None for path in done.files}
    used = subject.platform.reader.referenced(subject.place.table) if files else set()
    fault_point(point)
    io_ = PyArrowFileIO(subject.platform.lake_settings.for_python())
    for path in files:
        if plain_path(path) not in used:
            with suppress(FileNotFoundError):  # a run that was stopped here before
                io_.delete(path)


def files_of(done: SliceDone) -> set[str]:
    return {plain_path(path) for path in done.files}


def published_files(subject: StreamSubject) -> set[str]:
    reader, table = subject.platform.lake.reader, subject.place.table
    published = reader.published(table)
    return set() if published is None else set(reader.files(table, published.snapshot_id).data)
