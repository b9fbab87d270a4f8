"""The hash of many values at once is the one that a library computes for each of them."""

import json

import mmh3
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tidemark.connectors.envelope import content_hash
from tidemark.connectors.murmur import SHORT, hash_of_bytes, hash_of_words

pytestmark = pytest.mark.fast


@given(st.lists(st.binary(max_size=70) | st.binary(min_size=SHORT - 1, max_size=SHORT), max_size=20), st.integers(0, 3))
def test_bytes_have_the_hash_of_the_library_wherever_their_array_begins(values: list[bytes], skipped: int) -> None:
    array = pa.array(values, pa.large_binary()).slice(skipped)
    found = zip(*(half.tolist() for half in hash_of_bytes(array)), strict=True)
    assert list(found) == [mmh3.hash64(value, signed=False) for value in values[skipped:]]


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 5), max_size=10), st.integers(1, 5))
def test_words_have_the_hash_of_their_bytes(rows: list[tuple[int, ...]], width: int) -> None:
    words = [np.array([row[place] for row in rows], np.uint64) for place in range(width)]
    found = zip(*(half.tolist() for half in hash_of_words(*words)), strict=True)
    assert list(found) == [mmh3.hash64(np.array(row[:width], "<u8").tobytes(), signed=False) for row in rows]


def test_long_texts_among_short_ones_have_a_hash_of_their_own_and_leave_the_others_alone() -> None:
    texts = ["a" * SHORT, "a" * (SHORT + 1), "", "b" * 10_000, "short"]
    alone = [content_hash(pa.record_batch({"x": [text]})).to_pylist()[0] for text in texts]
    assert content_hash(pa.record_batch({"x": texts})).to_pylist() == alone
    assert len(set(alone)) == len(texts)


def test_a_record_has_the_sum_of_the_hashes_of_its_values() -> None:
    def tag(kind: str) -> bytes:
        return xxhash.xxh3_64_intdigest(json.dumps([kind, "x" if kind == "integer" else "y"]).encode()).to_bytes(8, "little")

    text = b"".join(half.to_bytes(8, "little") for half in mmh3.hash64(b"seven", signed=False))
    values = [
        mmh3.hash64(tag("integer") + (7).to_bytes(8, "little"), signed=False),
        mmh3.hash64(tag("text") + text, signed=False),
    ]
    summed = b"".join((sum(halves) % 2**64).to_bytes(8, "big") for halves in zip(*values, strict=True))
    assert content_hash(pa.record_batch({"x": [7], "y": ["seven"]})).to_pylist() == [summed]
