"""Files of a lake on S3, as DuckDB reads them: through Python, from several threads at once.

Imported only where a lake is on S3: its imports are slow.
"""

import io
from threading import get_ident
from typing import Any

import pyarrow as pa
from fsspec.implementations.arrow import ArrowFSWrapper


class SharedFile(io.RawIOBase):
    """A file that threads read at once, each at a position of its own.

    DuckDB's threads share one file and call `seek`, then `read`. With one position for all, a thread would read from where
    another one has just sought: valid files look damaged, or worse.
    """

    def __init__(self, file: pa.NativeFile) -> None:
        super().__init__()
        self._file = file
        self._size: int = file.size()
        # By the system's thread: Python's own thread-local values do not outlive a single call from a foreign thread.
        self._positions: dict[int, int] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._positions.get(get_ident(), 0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._positions[get_ident()] = start + offset
        return start + offset

    def read(self, size: int | None = -1) -> bytes:
        position = self.tell()
        wanted = self._size - position if size is None or size < 0 else size
        found: bytes = self._file.read_at(max(wanted, 0), position) if position < self._size else b""
        self._positions[get_ident()] = position + len(found)
        return found

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class SharedFiles(ArrowFSWrapper):  # type: ignore[misc]
    """A file system of Arrow's for DuckDB, for reading only."""

    def _open(self, path: str, mode: str = "rb", **_: Any) -> SharedFile:
        if mode != "rb":
            raise ValueError(f"{path}: these files are only read, not opened as '{mode}'")
        return SharedFile(self.fs.open_input_file(path))
