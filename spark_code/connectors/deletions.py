"""Deletions found by comparison: a key that Bronze has and a complete listing of the source has not."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.bronze import Envelope
from tidemark.connectors.envelope import content_hash
from tidemark.connectors.fitting import fitted
from tidemark.errors import TooManyDeleted

PAGE = 100_000
# So many may go whatever their share: half of a tiny table is no sign of trouble.
UNGUARDED = 10


@dataclass(frozen=True)
class Gone:
    """The keys that are there no more, of how many that were live, and how many the source listed."""

    keys: pa.RecordBatch
    live: int
    listed: int

    def guard(self, subject: StreamSubject) -> None:
        """Stops a run that would delete most of a stream because a listing went wrong.

        A listing without any key is the most likely to be wrong: no number of records is too small for it.
        """
        gone, percent = self.keys.num_rows, subject.stream.max_deleted_percent
        if gone * 100 <= self.live * percent or (gone <= UNGUARDED and self.listed):
            return
        full = "" if subject.stream.cursor is None else " --full"
        raise TooManyDeleted(
            f"{subject.name}: the source listed {self.listed} records, so this run would delete {gone} of {self.live} "
            f"(limit {percent} %, for more than {UNGUARDED} or a listing of none); nothing was published. Look at what the "
            "source shows to this login. If they are really gone: "
            f"`tidemark stream run {subject.name}{full} --allow-deletions`."
        )


def gone_keys(subject: StreamSubject, envelope: Envelope, base: int | None) -> Gone:
    """The keys of records that were there before this run and are no more.

    Only records of the published state are compared: one added and removed while the run was reading is found next time.
    """
    types = [envelope.fields[name] for name in subject.stream.key]
    if base is None:
        return Gone(pa.record_batch([pa.array([], each.type) for each in types], schema=pa.schema(types)), 0, 0)
    there = [pa.array([], pa.binary())]
    for page in subject.connector.keys(subject.stream, PAGE):
        # A key that does not fit was put aside when it was read: it is not in Bronze either.
        keys, _ = fitted(page, pa.schema(types))
        there.append(content_hash(keys))
    listed = pa.table({"key_hash": pa.concat_arrays(there)})
    reader = subject.platform.lake.reader
    live = f"""(SELECT key, key_hash FROM (
        SELECT key, key_hash, operation FROM {reader.files(subject.place.table, base).evolving_sql}
        QUALIFY row_number() OVER (PARTITION BY key_hash ORDER BY emitted_at DESC, arrival DESC) = 1)
        WHERE operation = 'upsert')"""
    with reader.connect() as db:
        db.register("listed", listed)
        # Both at once: the table is large, and read only once.
        found = db.sql(
            f"""WITH live AS MATERIALIZED {live}
            SELECT key, NULL AS live FROM live WHERE key_hash NOT IN (SELECT key_hash FROM listed)
            UNION ALL SELECT NULL, count(*) FROM live"""
        ).to_arrow_table()
    counted = found["live"].is_valid()
    struct = found.filter(pc.invert(counted))["key"].combine_chunks()
    keys = pa.record_batch([struct.field(each.name).cast(each.type) for each in types], schema=pa.schema(types))
    return Gone(keys, found.filter(counted)["live"][0].as_py(), listed.num_rows)
