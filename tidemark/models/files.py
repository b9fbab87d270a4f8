"""A folder of models: every .sql file is one SELECT, with a header or a file next to it that says the rest."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidemark.config import Config, ModelsSettings
from tidemark.config.document import Document, parsed_document, read_document, text_of
from tidemark.config.explanation import problems_of
from tidemark.config.origin import Origin
from tidemark.config.problems import as_findings, refusal
from tidemark.errors import ConfigError
from tidemark.findings import Finding
from tidemark.models import sql
from tidemark.models.project import Model, ModelHeader, wrong_name
from tidemark.models.sql import BadSql
from tidemark.parts import Claim, without_shared_names

LEAST = "The least it says is `materialization: table`, view or incremental. What has nothing to say needs none."
ELSEWHERE = "Remove it, or name another folder under `models:`."
RENAME = "Rename folder or file, or write `name: schema.table` into its header."
NO_FOLDER = "it lies in no folder. The first folder is the schema; or write `name: schema.table` into its header."

_HEADER = re.compile(r"\s*/\*[ \t]*---[ \t]*\n(?P<yaml>.*?)^[ \t]*---[ \t]*\*/", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"\s*/\*[ \t]*---")


def read_models(config: Config, settings: ModelsSettings) -> list[Claim[Model]]:
    """Every file of the folder, with all that is wrong in it."""
    if not settings.path.is_dir():
        words = f"there is no folder {settings.path}. Make it, or name another one."
        return [_claim_of(config.finding(("models", "folder"), words))]
    claims = [read_model(path, settings) for path in sorted(settings.path.rglob("*.sql"))]
    return without_shared_names([*claims, *_alone(settings.path)])


def _claim_of(finding: Finding, name: str | None = None) -> Claim[Model]:
    return Claim(finding.file, name, None, (finding,), guessed=True)


def read_model(path: Path, settings: ModelsSettings) -> Claim[Model]:
    """The model in one file, or all that is wrong in it."""
    try:
        text = text_of(path, str(path), ELSEWHERE).replace("\r\n", "\n")
        document, query = _split(path, text)
    except ConfigError as error:
        return Claim(str(path), _name_by_path(path, settings.path), findings=error.findings, guessed=True)
    header, findings = _header_of(document)
    name, line, misnamed = _name_of(path, settings.path, document, header)
    bound, variables, later = None, settings.variables | _variables(document, header), _of_the_run(header)
    try:
        # A header that cannot be read may have named them.
        bound = sql.with_variables(query, variables, later if header else {*later, *sql.variables_of(query)})
        parsed = sql.select_of(bound)
        sql.check_columns(parsed)
    except BadSql as error:
        return Claim(str(path), name, None, (*misnamed, *findings, Finding(str(path), error.line, str(error))), line)
    origin = Origin(document.file, document.lines) if document else None
    model = Model(name or "", sql.for_spark(bound), header or ModelHeader(), path, sql.references(parsed), origin)
    return Claim(str(path), name, model, (*misnamed, *findings), line)


def _header_of(document: Document | None) -> tuple[ModelHeader | None, tuple[Finding, ...]]:
    """What the header says; None, and why, if it cannot be used."""
    if document is None:
        return ModelHeader(), ()
    header = None
    try:
        header = ModelHeader.model_validate(dict(document.data))
    except ValidationError as error:
        document.problems += problems_of(error, document, ModelHeader)
    return (None if document.problems else header), as_findings(document.file, document.problems)


def _variables(document: Document | None, header: ModelHeader | None) -> dict[str, Any]:
    written: Mapping[str, Any] | None = header.variables if header else document.data.get("variables") if document else None
    return dict(written) if isinstance(written, Mapping) else {}


def _of_the_run(header: ModelHeader | None) -> frozenset[str]:
    """Variables that have a value only while a run goes on: those of the chunks."""
    chunks = header.full_incremental_refresh if header else None
    return frozenset(each.name for each in chunks.parameters) if chunks else frozenset()


# --- names -----------------------------------------------------------------------------------------------------------


def _name_of(
    path: Path, folder: Path, document: Document | None, header: ModelHeader | None
) -> tuple[str | None, int, tuple[Finding, ...]]:
    """The name of a model, the line that it is written in, and what is wrong with one that comes from the path."""
    written = header.name if header else document.data.get("name") if document else None
    if isinstance(written, str) and not wrong_name(written):
        return written, document.line(("name",)) if document else 1, ()
    parts = path.relative_to(folder).parts
    wrong = NO_FOLDER if len(parts) < 2 else wrong_name(f"{parts[0]}.{path.stem}")
    if wrong is None:
        return f"{parts[0]}.{path.stem}", 1, ()
    said = () if written is not None else (Finding(str(path), 1, wrong if wrong is NO_FOLDER else f"{wrong} {RENAME}"),)
    return None, 1, said


def _name_by_path(path: Path, folder: Path) -> str | None:
    return _name_of(path, folder, None, None)[0]


# --- header and query ------------------------------------------------------------------------------------------------


def _split(path: Path, text: str) -> tuple[Document | None, str]:
    """What the header or the file next to it says, and the query, in the lines where it stands."""
    header, other = _HEADER.match(text), _next_to(path)
    if header is None and (opening := _OPENING.match(text)):
        line = text.count("\n", 0, opening.end()) + 1
        raise refusal(str(path), "the header has no end. It ends with a line `--- */`.", line)
    if header and other:
        raise refusal(str(path), f"it has a header, and there is {other.name} next to it. Keep one of the two.")
    if other:
        return read_document(other, str(other), least=LEAST, elsewhere=ELSEWHERE), text
    if header is None:
        return None, text
    above, lines = text[: header.start("yaml")].count("\n"), text[: header.end()].count("\n")
    document = parsed_document("\n" * above + header["yaml"], str(path), least=LEAST)
    return document, "\n" * lines + text[header.end() :]


def _next_to(path: Path) -> Path | None:
    found = [each for suffix in (".yaml", ".yml") if (each := path.with_suffix(suffix)).exists()]
    if len(found) > 1:
        raise refusal(str(path), f"there are {found[0].name} and {found[1].name} next to it. Keep one of the two.")
    return found[0] if found else None


def _alone(folder: Path) -> Iterator[Claim[Model]]:
    """Files that say something of a query that is not there."""
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        if not path.with_suffix(".sql").exists():
            finding = Finding(str(path), 1, f"there is no {path.stem}.sql next to it.")
            yield _claim_of(finding, _name_by_path(path, folder))
