"""The manifest of a connector: everything about its streams except state and secrets."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic.json_schema import SkipJsonSchema

from tidemark.config.cron import checked_cron
from tidemark.config.document import Document, read_document
from tidemark.config.environment import BadReference, substituted, with_environment
from tidemark.config.explanation import problems_of
from tidemark.config.origin import Origin
from tidemark.config.problems import Place, as_findings, did_you_mean
from tidemark.config.schema import DIALECT, with_references
from tidemark.connectors.durations import Duration
from tidemark.connectors.forbidden import report_state_and_secrets
from tidemark.connectors.registry import known_kinds
from tidemark.connectors.stream import ManifestSection, StreamSpec, checked_name
from tidemark.errors import ConfigError, UnknownStream
from tidemark.parts import Claim

LEAST = "The least it needs is `connector`, `kind`, and one entry with `id` and `key` under `streams`."
ELSEWHERE = "Name a manifest that is there."

_WHOLE_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_CONNECTOR = re.compile(r"^connector:[ \t]*[\"']?([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)


def _whole(value: Any) -> Any:
    # What comes from the environment is text.
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) else value


class Manifest(ManifestSection):
    """All of a manifest."""

    connector: str
    """The connector's id in state and in the lake. It never changes."""
    kind: str
    """The kind of connector."""
    settings: dict[str, Any] = Field(default_factory=dict, repr=False)
    """What the kind needs to find the source. ${NAME} is looked up in the environment when the connector is used."""
    credentials: str | dict[str, str] | None = None
    """The name of credentials kept elsewhere, or fields with a reference to the environment each: ${NAME}."""
    schedule: str | None = None
    """When a run starts by itself: a cron expression such as "0 * * * *". Without it, never."""
    upkeep: str = "0 3 * * 0"
    """When the tables are compacted and old files removed: a cron expression."""
    watch: Annotated[int, Field(ge=1), BeforeValidator(_whole)] | None = None
    """Every how many seconds files or messages that wait are looked for, which starts a run. Without it, never."""
    freshness: Duration | None = None
    """How old the last run of a tenant may be before its check `is_fresh` fails: PT2H."""
    rate_limit: Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_number)] | None = None
    """Requests to the source in a second, at most."""
    streams: Annotated[tuple[StreamSpec, ...], Field(min_length=1, strict=False)]
    """What is read."""

    origin: SkipJsonSchema[Origin | None] = Field(default=None, alias="(origin)", repr=False)
    """Where all this is written."""

    def stream(self, id: str) -> StreamSpec:
        """The stream of that id."""
        known = [stream.id for stream in self.streams]
        if id not in known:
            raise UnknownStream(
                f"no stream '{id}' in the connector {self.connector}.{did_you_mean(id, known)} Streams: {', '.join(known)}."
            )
        return self.streams[known.index(id)]

    def resolved_settings(self) -> dict[str, Any]:
        """The settings with the environment put in."""
        return {key: self._resolved(value, ("settings", key)) for key, value in self.settings.items()}

    def resolved_credentials(self, named: Callable[[str], Mapping[str, str]] | None = None) -> dict[str, str]:
        """The credentials with the environment put in. `named` looks up those that are only named."""
        if isinstance(self.credentials, str):
            if named is None:
                words = "there is nowhere to look up credentials by name. Write fields with ${NAME} instead."
                raise self.written.refuse(("credentials",), words)
            return dict(named(self.credentials))
        return {field: self._resolved(value, ("credentials", field)) for field, value in (self.credentials or {}).items()}

    def _resolved(self, value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return {key: self._resolved(item, (*place, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolved(item, (*place, position)) for position, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            return substituted(value)
        except BadReference as error:
            raise self.written.refuse(place, str(error)) from None

    @property
    def written(self) -> Origin:
        """Where all this is written; without a file, the connector's name."""
        return self.origin or Origin(f"connector {self.connector}")

    @field_validator("connector")
    @classmethod
    def _connector_fits_into_a_path(cls, connector: str) -> str:
        return checked_name(connector)

    @field_validator("kind")
    @classmethod
    def _kind_is_known(cls, kind: str) -> str:
        known = known_kinds()
        if kind not in known:
            raise ValueError(f"there is no connector of this kind.{did_you_mean(kind, known)} Known: {', '.join(known)}.")
        return kind

    @field_validator("credentials", mode="before")
    @classmethod
    def _credentials_are_a_name_or_references(cls, given: Any) -> Any:
        if isinstance(given, str):
            # A secret written here would most likely break this rule, and is not repeated.
            return checked_name(given)
        if not isinstance(given, dict) or not given:
            raise ValueError("must be a name, or `field: ${NAME}` lines, indented below it.")
        for field, value in given.items():
            if not (isinstance(value, str) and _WHOLE_REFERENCE.fullmatch(value)):
                raise ValueError(
                    f"{field}: a secret is never written here. Put it into the environment and write ${{NAME}}, "
                    "without a default and with nothing around it."
                )
        return given

    @field_validator("schedule", "upkeep")
    @classmethod
    def _schedule_is_cron(cls, schedule: str | None) -> str | None:
        return None if schedule is None else checked_cron(schedule)


def load_manifest(path: Path) -> Manifest:
    """The manifest in the file; ConfigError with all that is wrong in it, a line each."""
    claim = read_manifest(path)
    if claim.findings or claim.part is None:
        raise ConfigError.of(claim.findings)
    return claim.part


def read_manifest(path: Path) -> Claim[Manifest]:
    """The manifest in the file, or all that is wrong in it."""
    try:
        document = read_document(path, str(path), least=LEAST, elsewhere=ELSEWHERE)
    except ConfigError as error:
        return Claim(str(path), _likely_name(path), findings=error.findings, guessed=True)
    report_state_and_secrets(document)
    given = with_environment(document, _looked_up_later)
    _report_shared_ids(given, document)
    origin = Origin(document.file, document.lines)
    manifest = None
    try:
        manifest = Manifest.model_validate({**given, "(origin)": origin}, by_alias=True, by_name=False)
    except ValidationError as error:
        document.problems += problems_of(error, document, Manifest)
    findings, line = as_findings(document.file, document.problems), document.line(("connector",))
    if _is_name(given.get("connector")):
        return Claim(document.file, given["connector"], manifest, findings, line)
    return Claim(document.file, _likely_name(path), None, findings, guessed=True)


def _is_name(given: Any) -> bool:
    try:
        return isinstance(given, str) and bool(checked_name(given))
    except ValueError:
        return False


def _likely_name(path: Path) -> str:
    """The connector of a file that cannot be read: what is written behind `connector:`, or else the file's own name."""
    try:
        written = _CONNECTOR.search(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        written = None
    return written[1] if written else path.stem


def manifest_schema() -> dict[str, Any]:
    """The JSON Schema of a manifest, for editors."""
    schema = Manifest.model_json_schema(by_alias=True)
    schema["properties"]["kind"]["examples"] = list(known_kinds())
    return {"$schema": DIALECT, **with_references(schema)}


def _looked_up_later(place: Place) -> bool:
    # To list or to check manifests must not need anybody's password.
    return place[0] in ("settings", "credentials")


def _report_shared_ids(given: dict[str, Any], document: Document) -> None:
    """Two streams of one id would overwrite each other's state and land in one table."""
    first: dict[str, str] = {}
    for position, id in _ids(given.get("streams")):
        # As in the lake's table names, which know neither case nor punctuation.
        table = re.sub(r"[^a-z0-9]", "_", id.lower())
        if table in first:
            words = f"has the same id as '{first[table]}' (case and punctuation aside). Give it one of its own."
            document.report(("streams", position, "id"), words)
        first.setdefault(table, id)


def _ids(streams: Any) -> Iterator[tuple[int, str]]:
    for position, stream in enumerate(streams if isinstance(streams, list) else ()):
        if isinstance(stream, dict) and isinstance(stream.get("id"), str):
            yield position, stream["id"]
