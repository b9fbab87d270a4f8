"""Files in a folder or below an S3 prefix: CSV, JSON lines and Parquet, plain, gzip or zstd.

Progress is the set of files that were read, each by path, size, time and content, and those of long ago by digests. A file
that becomes visible late, with an earlier time than others, is found like any other; a file that is replaced is read again.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, GreaterThanOrEqual, LessThan

from tidemark.connectors.contract import CheckpointConnector, Slice, StreamDescription, rejected
from tidemark.connectors.durations import Duration
from tidemark.connectors.json_lines import (
    BLOCK,
    fields_of_objects,
    line_blocks,
    lines_of,
    merged_fields,
    objects_that_fit,
    plain,
    settled,
)
from tidemark.connectors.kinds._files_seen import AFTER_VERSIONS, PATH_OF_CURSOR, File, Seen, grouped
from tidemark.connectors.stream import StreamSpec
from tidemark.connectors.unknown_settings import unknown_settings
from tidemark.errors import ConfigError, SchemaRefused, SourceError, SourceUnreachable
from tidemark.lake import quoted

SETTINGS = {"path", "pattern", "format", "endpoint", "region", "look_back"}
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
PACKED = {".gz": "gzip", ".zst": "zstd"}
SLICE_BYTES = 64 * 1024 * 1024
LOOK_BACK = "P7D"


class FilesConnector(CheckpointConnector):
    """Settings: `path`, a folder or s3://bucket/prefix; `pattern`, such as *.csv.gz; `format`, unless the names show it."""

    kind = "files"
    checkpoint_field = "_file_checkpoint"
    default_page = 50_000

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, str]) -> None:
        super().__init__(settings, credentials)
        unknown = sorted(self.settings.keys() - SETTINGS)
        if unknown or not isinstance(self.settings.get("path"), str):
            what = unknown_settings(unknown, SETTINGS) if unknown else "`path` is missing"
            raise ConfigError(f"settings of a files connector: {what}. It has: {', '.join(sorted(SETTINGS))}.")
        if self.settings.get("format", "csv") not in FORMATS.values():
            raise ConfigError("settings of a files connector: format must be one of csv, jsonl, parquet.")
        try:
            self._look_back = Duration.parse(str(self.settings.get("look_back", LOOK_BACK)))
        except ValueError as error:
            raise ConfigError(f"settings of a files connector: look_back {error}") from None
        # Files whose time changed and whose content did not, as `pending` found them, for `advanced` of the same run.
        self._touched: list[File] = []

    # --- the contract ------------------------------------------------------------------------------------------------

    def streams(self) -> list[StreamDescription]:
        return [StreamDescription(file.path) for file in self._listed("")]

    def discover(self, stream: StreamSpec) -> pa.Schema:
        return self._fields(stream, self._listed(stream.source))

    def fields(self, stream: StreamSpec, slices: Iterable[Slice]) -> pa.Schema:
        return self._fields(stream, [file for each in slices for file in files_of(each)])

    def pending(self, stream: StreamSpec, checkpoint: str | None, parallel: int) -> list[Slice]:
        del parallel  # a slice is as many files as are worth a task
        seen, new = Seen.from_text(checkpoint), list[File]()
        self._touched = []
        for file in seen.unread(self._listed(stream.source)):
            before, read = seen.files.get(file.path), self._hashed(file, stream)
            same = before is not None and before.sha256 == read.sha256
            (self._touched if same else new).append(read)
        return [
            Slice(number, detail={"files": [astuple(file) for file in group]})
            for number, group in enumerate(grouped(new, SLICE_BYTES))
        ]

    def has_news(self, stream: StreamSpec, checkpoint: str) -> bool:
        """By the listing alone. A file that was only touched is news once: the run after it notes its time."""
        return bool(Seen.from_text(checkpoint).unread(self._listed(stream.source)))

    def advanced(self, stream: StreamSpec, checkpoint: str | None, slices: Iterable[Slice]) -> str:
        """What was seen before and is still there, and what was read now."""
        read = [*self._touched, *(file for each in slices for file in files_of(each))]
        listed = self._listed(stream.source)
        return Seen.from_text(checkpoint).moved(read, listed, self._look_back, time.time_ns()).to_text()

    def resumable(self, slices: Iterable[Slice]) -> bool:
        """A plan whose files are not as they were when it was made would fail for ever."""
        there = {(file.path, file.size, file.modified) for file in self._listed("")}
        return all((file.path, file.size, file.modified) in there for each in slices for file in files_of(each))

    def reachable(
        self, stream: StreamSpec, checkpoint: str | None, *, full: bool, slices: Iterable[Slice], rows: str
    ) -> str:
        """Of the files that are to be read, the rows of the version that landed last, whatever the state says of it.

        So a file that was away and is there again lands nothing, and one that was put back to what it once was is a change.
        """
        del stream, checkpoint, full
        paths = ", ".join(sorted({quoted(file.path) for each in slices for file in files_of(each)}))
        if not paths:
            return "false"
        last = "max_by(cursor, {'at': emitted_at, 'arrival': arrival})"
        return f"cursor IN (SELECT {last} FROM {rows} WHERE {PATH_OF_CURSOR} IN ({paths}) GROUP BY {PATH_OF_CURSOR})"

    def bounds(
        self, stream: StreamSpec, checkpoint: str | None, *, full: bool, slices: Iterable[Slice]
    ) -> BooleanExpression:
        """From the first path to the last, each with any version."""
        del stream, checkpoint, full
        paths = {file.path for each in slices for file in files_of(each)}
        if not paths:
            return AlwaysFalse()
        last = max(f"{path}{AFTER_VERSIONS}" for path in paths)
        return And(GreaterThanOrEqual(term="cursor", value=min(paths)), LessThan(term="cursor", value=last))

    def read(self, stream: StreamSpec, slice: Slice, page_size: int) -> Iterator[pa.RecordBatch]:
        schema = self.fields(stream, [slice])
        for file in files_of(slice):
            if self._hashed(file, stream).sha256 != file.sha256:
                raise SourceError(f"{stream.id}: {file.path} was replaced while it was read. Run again.")
            for records in self._records(file, stream, schema, page_size):
                for start in range(0, records.num_rows, page_size):
                    yield records.slice(start, page_size)

    def close(self) -> None:
        """Every file is closed when it was read."""

    # --- files -------------------------------------------------------------------------------------------------------

    def _opened(self) -> tuple[pa.fs.FileSystem, str]:
        path = self.settings["path"]
        if not path.startswith("s3://"):
            return pa.fs.LocalFileSystem(), path.removeprefix("file://").rstrip("/")
        options = {
            "access_key": self.credentials.get("access_key"),
            "secret_key": self.credentials.get("secret_key"),
            "endpoint_override": self.settings.get("endpoint"),
            "region": self.settings.get("region"),
        }
        return pa.fs.S3FileSystem(**{key: value for key, value in options.items() if value}), path.removeprefix(
            "s3://"
        ).rstrip("/")

    def _listed(self, source: str) -> list[File]:
        """The files that fit the pattern, in the order they came into being."""
        system, root = self._opened()
        folder = f"{root}/{source}".rstrip("/") if source else root
        try:
            found = system.get_file_info(pa.fs.FileSelector(folder, recursive=True))
        except FileNotFoundError:
            raise SourceUnreachable(f"{self.settings['path']}: there is no such folder.") from None
        except OSError as error:
            raise SourceUnreachable(f"{self.settings['path']} cannot be listed ({type(error).__name__}).") from None
        pattern = self.settings.get("pattern", "*")
        files = [
            File(each.path.removeprefix(f"{root}/"), each.size, each.mtime_ns or 0)
            for each in found
            if each.type == pa.fs.FileType.File
            and fnmatchcase(each.base_name, pattern)
            and not each.base_name.startswith(".")
        ]
        return sorted(files, key=lambda file: (file.modified, file.path))

    def _stream(self, file: File) -> pa.NativeFile:
        system, root = self._opened()
        return system.open_input_file(f"{root}/{file.path}")

    def _hashed(self, file: File, stream: StreamSpec) -> File:
        digest = hashlib.sha256()
        try:
            with self._stream(file) as opened:
                while block := opened.read(BLOCK):
                    digest.update(block)
        except OSError as error:
            raise SourceError(f"{stream.id}: {file.path} cannot be read ({type(error).__name__}).") from None
        return File(file.path, file.size, file.modified, digest.hexdigest())

    def _format(self, file: File) -> str:
        name = file.path.lower()
        for ending in PACKED:
            name = name.removesuffix(ending)
        found = self.settings.get("format") or next((form for end, form in FORMATS.items() if name.endswith(end)), None)
        if found is None:
            raise ConfigError(f"{file.path}: its name does not show its format. Set `format` to csv, jsonl or parquet.")
        return str(found)

    def _unpacked(self, file: File) -> Any:
        packing = next((how for ending, how in PACKED.items() if file.path.lower().endswith(ending)), None)
        opened = self._stream(file)
        return pa.CompressedInputStream(opened, packing) if packing else opened

    # --- records -----------------------------------------------------------------------------------------------------

    def _fields(self, stream: StreamSpec, files: Iterable[File]) -> pa.Schema:
        """The fields of all these files together."""
        found = []
        for file in files:
            try:
                found.append(self._fields_of(file))
            except (pa.ArrowException, OSError, EOFError, StopIteration) as error:
                raise self._broken(file, stream, error) from None
        try:
            unified = pa.unify_schemas(found, promote_options="permissive") if found else pa.schema([])
        except pa.ArrowException:
            raise SchemaRefused(f"{stream.id}: a field has types in these files that do not go together.") from None
        return pa.schema([*(plain(field) for field in unified), (self.checkpoint_field, pa.string())])

    def _fields_of(self, file: File) -> pa.Schema:
        form = self._format(file)
        if form == "parquet":
            with self._stream(file) as opened:
                return pq.read_schema(opened).remove_metadata()
        if form == "csv":
            options = {"convert_options": AS_TEXT, "parse_options": lenient([])}
            with self._unpacked(file) as text, pa.csv.open_csv(text, **options) as reader:
                return pa.schema([(name, pa.string()) for name in reader.schema.names])
        with self._unpacked(file) as text:
            found: dict[str, pa.DataType] = {}
            for block in line_blocks(text):
                found = merged_fields(found, fields_of_objects(lines_of(block)[0]))
        typed = {name: settled(type_) for name, type_ in found.items()}
        return pa.schema([(name, type_) for name, type_ in typed.items() if type_ is not None])

    def _records(self, file: File, stream: StreamSpec, schema: pa.Schema, page_size: int) -> Iterator[pa.RecordBatch]:
        form, own = self._format(file), schema.remove(schema.get_field_index(self.checkpoint_field))
        try:
            if form == "parquet":
                with self._stream(file) as opened:
                    for batch in pq.ParquetFile(opened).iter_batches(batch_size=page_size):
                        yield self._shaped(batch, schema, file)
            elif form == "csv":
                yield from self._csv(file, schema)
            else:
                with self._unpacked(file) as text:
                    for block in line_blocks(text):
                        objects, broken = lines_of(block)
                        records, unfit = objects_that_fit(objects, own)
                        for batch in records.to_batches():
                            yield self._shaped(batch, schema, file)
                        broken += [objects[place] for place in unfit]
                        if broken:
                            texts = [line.decode(errors="replace") for line in broken]
                            yield rejected(texts, f"a line of {file.path} is no JSON object of the fields' types")
        except (pa.ArrowException, OSError, EOFError) as error:
            raise self._broken(file, stream, error) from None

    def _csv(self, file: File, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        broken: list[str] = []
        options = {"convert_options": AS_TEXT, "parse_options": lenient(broken)}
        with self._unpacked(file) as text, pa.csv.open_csv(text, **options) as reader:
            for batch in reader:
                yield self._shaped(batch, schema, file)
        if broken:
            yield rejected(broken, f"a line of {file.path} has not as many fields as its first")

    def _shaped(self, batch: pa.RecordBatch, schema: pa.Schema, file: File) -> pa.RecordBatch:
        """The records with all fields of the schema, and with the file they are from."""
        columns = [
            pa.repeat(pa.scalar(file.checkpoint), batch.num_rows)
            if field.name == self.checkpoint_field
            else batch[field.name].cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        return pa.record_batch(columns, schema=schema)

    def _broken(self, file: File, stream: StreamSpec, error: BaseException) -> SourceError:
        return SourceError(f"{stream.id}: {file.path} is damaged or no {self._format(file)} ({type(error).__name__}).")


# Unquoted nothing is NULL; "" is text without letters.
AS_TEXT = pa.csv.ConvertOptions(
    strings_can_be_null=True, null_values=[""], quoted_strings_can_be_null=False, default_column_type=pa.string()
)


def lenient(broken: list[str]) -> pa.csv.ParseOptions:
    def note(row: Any) -> str:
        broken.append(row.text or "")
        return "skip"

    return pa.csv.ParseOptions(invalid_row_handler=note, newlines_in_values=True)


def files_of(slice: Slice) -> list[File]:
    return [File(*each) for each in slice.detail["files"]]
