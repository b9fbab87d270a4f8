"""Deletions found by comparison: a key that Bronze has and a complete listing of the source has not."""

import pyarrow as pa

from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.bronze import Envelope
from tidemark.connectors.envelope import content_hash
from tidemark.connectors.fitting import fitted

PAGE = 100_000


def gone_keys(subject: StreamSubject, envelope: Envelope, base: int | None) -> pa.RecordBatch:
    """The keys of records that were there before this run and are no more.

    Only records of the published state are compared: one that came and went while the run was reading is found next time.
    """
    types = [envelope.fields[name] for name in subject.stream.key]
    if base is None:
        return pa.record_batch([pa.array([], each.type) for each in types], schema=pa.schema(types))
    there = [pa.array([], pa.binary())]
    for page in subject.connector.keys(subject.stream, PAGE):
        # A key that does not fit was put aside when it was read: it is not in Bronze either.
        keys, _ = fitted(page, pa.schema(types))
        there.append(content_hash(keys))
    listed = pa.table({"key_hash": pa.concat_arrays(there)})
    reader = subject.platform.lake.reader
    with reader.connect() as db:
        db.register("listed", listed)
        found = db.sql(
            f"""SELECT key FROM (SELECT key, key_hash, operation FROM {reader.files(subject.place.table, base).evolving_sql}
                QUALIFY row_number() OVER (PARTITION BY key_hash ORDER BY emitted_at DESC, arrival DESC) = 1)
            WHERE operation = 'upsert' AND key_hash NOT IN (SELECT key_hash FROM listed)"""
        ).to_arrow_table()
    struct = found["key"].combine_chunks()
    return pa.record_batch([struct.field(each.name).cast(each.type) for each in types], schema=pa.schema(types))
