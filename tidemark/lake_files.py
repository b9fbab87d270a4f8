"""Files of a lake in a local folder, for commands that only read: pyiceberg's own reader of files imports pandas."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile


def path_of(location: str) -> str:
    """A file however Iceberg spells it: with `file:` before it, or without."""
    return unquote(urlsplit(location).path) if location.startswith("file:") else location


class LocalFile(InputFile):
    """A file that is there to be read."""

    def __len__(self) -> int:
        return os.stat(path_of(self.location)).st_size

    def exists(self) -> bool:
        return os.path.exists(path_of(self.location))

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - files always are
        return Path(path_of(self.location)).open("rb")


class LocalFiles(FileIO):
    """Reads, and refuses everything else."""

    def new_input(self, location: str) -> InputFile:
        return LocalFile(location)

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"{location}: this reader of the lake never writes.")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"{location}: this reader of the lake never deletes.")
