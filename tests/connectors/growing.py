"""A third party's connector: records in a JSON file, with fields that nobody describes."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tidemark.connectors.contract import Connector, Slice, StreamDescription, Window
from tidemark.connectors.cursors import Cursor
from tidemark.connectors.stream import StreamSpec


class Growing(Connector):
    kind = "growing"

    @property
    def records(self) -> list[dict[str, object]]:
        return list(json.loads(Path(self.settings["path"]).read_text()))

    def streams(self) -> list[StreamDescription]:
        return [StreamDescription("records", ("id",))]

    def discover(self, stream: StreamSpec) -> pa.Schema:
        return pa.schema([("id", pa.int64())])

    def now(self, stream: StreamSpec) -> Cursor | None:
        return None

    def count(self, stream: StreamSpec, window: Window) -> int | None:
        return len(self.records)

    def slices(self, stream: StreamSpec, window: Window, parallel: int) -> list[Slice]:
        return [Slice(number) for number in range(len(self.records))]

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        self.pace()
        yield pa.RecordBatch.from_pylist([self.records[slice.number]])

    def close(self) -> None:
        """Nothing is open."""


class Dying(Growing):
    """Its process is killed, once, when it reads the slice that the file `doomed` names."""

    kind = "dying"

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        doomed = Path(self.settings["doomed"])
        if doomed.exists() and doomed.read_text() == str(slice.number):
            doomed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().read(stream, slice, page_size)
