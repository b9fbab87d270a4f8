"""What a run is going to read, fixed before it does, and kept sealed until it is published: it holds values of state."""

import io
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO

from spark_code.connectors.slices import SliceDone
from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.bronze import greatest_cursor
from tidemark.connectors.contract import CheckpointConnector, Slice, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.place import SYSTEM
from tidemark.connectors.stream import StreamSpec
from tidemark.control import StreamState
from tidemark.errors import SchemaRefused, StateError
from tidemark.lake import plain_path, quoted
from tidemark.store import ObjectStore

# When what a snapshot added counts as emitted, in microseconds.
EMITTED_AT = "tidemark.emitted-at"

# Errors after which the source or the manifest is changed: what was read before is read anew.
SETTLED = ("CursorInvalid", "SchemaRefused", "ChecksFailed", "ConfigError", "TooManyDeleted")


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
    # Fields that records turned out to have beside those that were described.
    grown_bytes: str = field(default="", repr=False)

    @classmethod
    def made(
        cls,
        subject: StreamSubject,
        run_id: str,
        state: StreamState | None,
        window: Window,
        slices: list[Slice],
        discovered: pa.Schema,
        *,
        full: bool,
    ) -> "IngestPlan":
        stream = subject.stream
        return cls(
            run_id=run_id,
            state_version=state.version if state else None,
            full=full,
            committed=state.last_cursor if state else None,
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

    def taken_over(self, run_id: str) -> "IngestPlan":
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

    def widened(self, grown: Iterable[str]) -> "IngestPlan":
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
        """Slices that were read to their end, by this run or by the one it took over from."""
        noted = [SliceDone.from_json(store.read(info.key)) for info in store.list(self.done + "/")]
        return {each.number: each for each in noted}

    def known_hashes(self, subject: StreamSubject) -> pa.Table | None:
        """Hashes of what landed before and could come again."""
        reader, table = subject.platform.lake.reader, subject.place.table
        published = reader.published(table)
        if published is None:
            return None
        with reader.connect() as db:
            return db.sql(self.known_sql(subject, reader.files(table, published.snapshot_id).evolving_sql)).to_arrow_table()

    def known_sql(self, subject: StreamSubject, rows: str) -> str:
        """A query for those hashes among rows of Bronze.

        Only what the last run landed of a key counts: a record that has become again what it once was is a change. Of files
        and messages older ones are there beside newer ones, and the connector says which can come again.
        """
        stream = subject.stream
        last = f"SELECT content_hash FROM {rows} QUALIFY emitted_at = max(emitted_at) OVER (PARTITION BY key_hash)"
        if isinstance(subject.connector, CheckpointConnector):
            again = subject.connector.reachable(stream, self.committed, full=self.full, slices=self.slices, rows=rows)
            return f"SELECT content_hash FROM {rows} WHERE {again}"
        if stream.cursor is None or self.full:
            return last
        again = self._reachable(subject) + (" OR cursor IS NULL" if stream.null_cursor == "include" else "")
        # Of what the window reaches, which is little, and of its keys alone: by then there may be very many rows.
        near = f"SELECT key_hash, content_hash, emitted_at FROM {rows} WHERE {again}"
        newest = f"SELECT key_hash, max(emitted_at) AS emitted_at FROM {rows} SEMI JOIN near USING (key_hash) GROUP BY ALL"
        lasting = f"SELECT content_hash FROM near SEMI JOIN ({newest}) USING (key_hash, emitted_at)"
        return f"WITH near AS MATERIALIZED ({near}) {lasting}"

    def _reachable(self, subject: StreamSubject) -> str:
        """Rows that the window reaches. Where their text does not sort as they do, all of them."""
        stream = subject.stream
        types = {each.name: each.type for each in self.schema}
        fields = stream.cursor_fields
        if self.lower is None or len(fields) > 1:
            return "true"
        lower = stream.parse_cursor(self.lower)
        if stream.cursor_types == "integer":
            return f"TRY_CAST(cursor AS HUGEINT) >= {int(str(lower))}"
        kind = types[fields[0]]
        # A clock without a zone stands in Bronze as its own zone shows it.
        sorts_as_text = pa.types.is_timestamp(kind) and kind.tz is not None and lower.text.endswith(("Z", "+00:00"))
        return f"cursor >= {quoted(lower.text[:10])}" if sorts_as_text else "true"

    def greatest_landed(self, subject: StreamSubject, snapshot: int | None, files: list[str]) -> Cursor | None:
        """The greatest cursor in the files that were landed, compared as what it means."""
        if snapshot is None:
            return None
        stream = subject.stream
        fields = stream.cursor_fields
        io_ = PyArrowFileIO(subject.platform.lake_settings.for_python())
        greatest: Cursor | None = None
        for path in files:
            with io_.new_input(path).open() as file:
                content = pq.ParquetFile(io.BytesIO(file.read()) if subject.platform.lake_settings.on_s3 else file)
                for batch in content.iter_batches(columns=[f"record.{name}" for name in fields]):
                    record = batch["record"]
                    found = greatest_cursor(
                        pa.record_batch(record.flatten(), names=[each.name for each in record.type]), stream
                    )
                    greatest = max((each for each in (greatest, found) if each is not None), default=None)
        return greatest

    def greatest_before(self, subject: StreamSubject) -> Cursor | None:
        """The greatest cursor that the published table has inside the window."""
        reader, table, stream = subject.platform.lake.reader, subject.place.table, subject.stream
        published = reader.published(table)
        if published is None:
            return None
        with reader.connect() as db:
            rows = reader.files(table, published.snapshot_id).evolving_sql
            texts = db.execute(f"SELECT DISTINCT cursor FROM {rows} WHERE cursor IS NOT NULL").fetchall()
        window = self.window(stream)
        return max((each for (text,) in texts if (each := stream.parse_cursor(text)) in window), default=None)

    def refuse_another_schema(self, now: pa.Schema) -> None:
        if now != self.schema:
            raise SchemaRefused(
                f"run {self.run_id}: the fields of the source changed while it was read; one that came meanwhile would be "
                "lost for the records that were read without it. Nothing was published; run again."
            )


def meaning(subject: StreamSubject) -> str:
    """What the slices of a plan depend on beside the state: the stream's words, the kind, and where the source is."""
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
    told = asdict(plan) | {"slices": [each.to_json() for each in plan.slices]}
    sealed = subject.registry.seal(subject.manifest.connector, subject.stream.id, json.dumps(told))
    subject.platform.store.put(f"{subject.place.run(plan.run_id)}/plan.sealed", sealed.encode())


def load_plan(subject: StreamSubject, run_id: str) -> IngestPlan | None:
    found = subject.platform.store.find(f"{subject.place.run(run_id)}/plan.sealed")
    if found is None:
        return None
    try:
        text = subject.registry.open(subject.manifest.connector, subject.stream.id, bytes(found.body).decode())
        told = json.loads(text)
        return IngestPlan(**told | {"slices": tuple(Slice.from_json(each) for each in told["slices"])})
    except (StateError, TypeError):
        return None  # sealed with a key that is gone, or made by another version: it is read anew


def resumable_plan(subject: StreamSubject, state_version: int | None) -> IngestPlan | None:
    """The plan of the last run if that was stopped and its slices still mean the same."""
    history = subject.platform.control.runs.history(SYSTEM, subject.name, limit=2)
    for record in history:
        if record.status == "running":
            continue
        if record.status not in ("failed", "abandoned") or (record.error or "").startswith(SETTLED):
            return None
        plan = load_plan(subject, record.run_id)
        if plan is None or plan.state_version != state_version or plan.spec != meaning(subject):
            return None
        if isinstance(subject.connector, CheckpointConnector) and not subject.connector.resumable(plan.slices):
            return None
        finished = plan.finished(subject.platform.store)
        # Killed between publishing and moving the state: its files are in the table, and adding them again would land twice.
        landed = set().union(*map(files_of, finished.values()))
        return plan if finished and landed.isdisjoint(published_files(subject)) else None
    return None


def files_of(done: SliceDone) -> set[str]:
    return {plain_path(path) for path in done.files}


def published_files(subject: StreamSubject) -> set[str]:
    reader, table = subject.platform.lake.reader, subject.place.table
    published = reader.published(table)
    return set() if published is None else set(reader.files(table, published.snapshot_id).data)
